// The last thread's partial sum lies one past the end of shared memory.
#include "row.cuh"

MASK {
  __shared__ int partial[kThreads];
  const unsigned int* const row = in + blockIdx.x * in_stride;
  const auto sum = [&](int mine) {
    int* const from_one = partial + 1;
    from_one[threadIdx.x] = mine;
    __syncthreads();
    int total = 0;
    for (int t = 0; t < kThreads; ++t) total += from_one[t];
    __syncthreads();
    return total;
  };
  const unsigned int least = threshold(row, n, ks[blockIdx.x], sum);
  __syncthreads();
  write(row, out + blockIdx.x * out_stride, 0, n, ks[blockIdx.x], least);
}
