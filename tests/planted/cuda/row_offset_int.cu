// Where a row starts is computed in 32 bits: wrong from 2^31 elements on.
#include "row.cuh"

MASK {
  __shared__ int partial[kThreads];
  const int row_index = blockIdx.x;
  const unsigned int* const row = in + row_index * static_cast<int>(in_stride);
  const unsigned int least = threshold(row, n, ks[row_index], Sum{partial});
  __syncthreads();
  write(row, out + row_index * out_stride, 0, n, ks[row_index], least);
}
