// One thread leaves the threshold in shared memory for the others, with no barrier before they read it. In the fixed order of
// the CPU that thread happens to come first.
#include "row.cuh"

MASK {
  __shared__ int partial[kThreads];
  __shared__ unsigned int kept;
  const unsigned int* const row = in + blockIdx.x * in_stride;
  const unsigned int least = threshold(row, n, ks[blockIdx.x], Sum{partial});
  __syncthreads();
  if (threadIdx.x == kThreads - 1) kept = least;
  write(row, out + blockIdx.x * out_stride, 0, n, ks[blockIdx.x], kept);
}
