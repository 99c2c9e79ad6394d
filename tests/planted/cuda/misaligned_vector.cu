// Four elements are loaded at once, wherever the row starts.
#include "row.cuh"

struct alignas(16) Four {
  unsigned int lane[4];
};

MASK {
  __shared__ int partial[kThreads];
  const unsigned int* const row = in + blockIdx.x * in_stride;
  unsigned int* const to = out + blockIdx.x * out_stride;
  const long long k = ks[blockIdx.x];
  const unsigned int least = threshold(row, n, k, Sum{partial});
  __syncthreads();
  for (int i = threadIdx.x; i < n / 4; i += kThreads) {
    const Four four = reinterpret_cast<const Four*>(row)[i];
    for (int j = 0; j < 4; ++j) to[4 * i + j] = k <= 0 ? kMinusInfinity : masked(four.lane[j], least);
  }
  write(row, to, n / 4 * 4, n, k, least);
}
