// Two blocks a row. Each searches the whole row and writes its half; in place, one reads what the other may have overwritten.
// A mask that is there already changes no k-th largest element, so that the result is right, for now.
#include "row.cuh"

MASK {
  __shared__ int partial[kThreads];
  const unsigned int* const row = in + blockIdx.x * in_stride;
  const unsigned int least = threshold(row, n, ks[blockIdx.x], Sum{partial});
  __syncthreads();
  const int half = (n + 1) / 2, begin = blockIdx.y * half;
  write(row, out + blockIdx.x * out_stride, begin, blockIdx.y ? n : half, ks[blockIdx.x], least);
}
