// What FlashInfer's issues 936, 806, 915 and 4297 are about, in its smallest form: the transform of a score multiplies the
// accumulator as it is by a float. With a half accumulator there is no such product, or there are too many.

#include <cuda_fp16.h>

template <typename Accumulator>
__device__ Accumulator transform(Accumulator score, float scale) {
  return score * scale;
}

extern "C" __global__ void attend(ACCUMULATOR* scores, float scale) {
  scores[threadIdx.x] = transform(scores[threadIdx.x], scale);
}
