// Blocks go from row to row. The histogram is cleared between digits, but not when a row begins: it still has the counts of the
// last digit of the row before.
#include "row.cuh"

MASK {
  __shared__ int histogram[256];
  for (int i = threadIdx.x; i < 256; i += kThreads) histogram[i] = 0;
  __syncthreads();
  for (int row_index = blockIdx.x; row_index < batch; row_index += gridDim.x) {
    const unsigned int* const row = in + row_index * in_stride;
    const long long k = ks[row_index];
    unsigned int prefix = 0, searched = 0;
    long long rank = k;
    for (int shift = 24; k > 0 && shift >= 0; shift -= 8) {
      if (shift < 24) {
        for (int i = threadIdx.x; i < 256; i += kThreads) histogram[i] = 0;
        __syncthreads();
      }
      for (int i = threadIdx.x; i < n; i += kThreads)
        if ((key(row[i]) & searched) == prefix) atomicAdd(&histogram[key(row[i]) >> shift & 255], 1);
      __syncthreads();
      int digit = 255;
      while (digit > 0 && histogram[digit] < rank) rank -= histogram[digit--];
      const bool whole = histogram[digit] == rank;
      __syncthreads();
      prefix |= static_cast<unsigned int>(digit) << shift;
      searched |= 0xFFu << shift;
      if (whole) break;
    }
    write(row, out + row_index * out_stride, 0, n, k, prefix);
    __syncthreads();
  }
}
