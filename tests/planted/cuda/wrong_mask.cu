// The mask of the shuffles names the lanes that have an element, and the others take part as well.
#include "row.cuh"

MASK {
  __shared__ int total;
  const unsigned int* const row = in + blockIdx.x * in_stride;
  const unsigned int lanes = n < 32 ? (1u << n) - 1 : ~0u;
  const auto sum = [&](int mine) {
    for (int step = 16; step; step /= 2) mine += __shfl_xor_sync(lanes, mine, step);
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) atomicAdd(&total, mine);
    __syncthreads();
    const int all = total;
    __syncthreads();
    return all;
  };
  const unsigned int least = threshold(row, n, ks[blockIdx.x], sum);
  __syncthreads();
  write(row, out + blockIdx.x * out_stride, 0, n, ks[blockIdx.x], least);
}
