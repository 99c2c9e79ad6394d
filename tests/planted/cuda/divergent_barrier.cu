// Threads without an element skip a barrier that the others wait at.
#include "row.cuh"

MASK {
  __shared__ int partial[kThreads];
  const unsigned int* const row = in + blockIdx.x * in_stride;
  const auto sum = [&](int mine) {
    if (static_cast<int>(threadIdx.x) < n) {
      partial[threadIdx.x] = mine;
      __syncthreads();
    }
    int total = 0;
    for (int t = 0; t < kThreads && t < n; ++t) total += partial[t];
    __syncthreads();
    return total;
  };
  const unsigned int least = threshold(row, n, ks[blockIdx.x], sum);
  __syncthreads();
  write(row, out + blockIdx.x * out_stride, 0, n, ks[blockIdx.x], least);
}
