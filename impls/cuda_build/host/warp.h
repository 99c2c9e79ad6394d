// Warp operations. Each lane leaves its operands at a meeting, and the last to arrive computes all lanes' results.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

#include "checked.h"
#include "runtime.h"

namespace warpcheck {

constexpr unsigned int kAllLanes = 0xFFFFFFFFu;

// Calls visit(operands of lane l, l) for every lane of the mask.
template <typename Operands, typename Visit>
void for_lanes(void** operands, std::uint32_t mask, Visit visit) {
  for (; mask; mask &= mask - 1) {
    const int lane = std::countr_zero(mask);
    visit(*static_cast<Operands*>(operands[lane]), lane);
  }
}

template <typename T>
struct Shuffle {
  T value;
  unsigned int source;
  T result;
};

template <typename T>
void combine_shuffle(void** operands, std::uint32_t mask) {
  for_lanes<Shuffle<T>>(operands, mask, [=](Shuffle<T>& lane, int) {
    // What a lane outside the mask holds is undefined: here all ones, a NaN in every format.
    if (mask >> lane.source & 1) std::memcpy(&lane.result, &static_cast<Shuffle<T>*>(operands[lane.source])->value, sizeof(T));
    else std::memset(static_cast<void*>(&lane.result), 0xFF, sizeof(T));
  });
}

template <typename T>
T shuffle(unsigned int mask, const T& value, unsigned int source, const char* name) {
  static_assert(sizeof(T) <= 8, "a shuffle moves eight bytes at most");
  Shuffle<T> operands{value, source, value};
  warpcheck_meet(mask, combine_shuffle<T>, &operands, name);
  return operands.result;
}

WARPCHECK_UNCHECKED unsigned int lane() { return warpcheck_thread->lane; }

struct Vote {
  bool predicate;
  unsigned int result;
};

inline void combine_ballot(void** operands, std::uint32_t mask) {
  unsigned int ballot = 0;
  for_lanes<Vote>(operands, mask, [&](Vote& vote, int l) { ballot |= static_cast<unsigned int>(vote.predicate) << l; });
  for_lanes<Vote>(operands, mask, [&](Vote& vote, int) { vote.result = ballot; });
}

inline unsigned int ballot(unsigned int mask, bool predicate, const char* name) {
  Vote vote{predicate, 0};
  warpcheck_meet(mask, combine_ballot, &vote, name);
  return vote.result;
}

template <typename T>
struct Match {
  T value;
  unsigned int result;
};

template <typename T>
void combine_match(void** operands, std::uint32_t mask) {
  for_lanes<Match<T>>(operands, mask, [=](Match<T>& mine, int) {
    mine.result = 0;
    for_lanes<Match<T>>(operands, mask, [&](Match<T>& other, int l) {
      if (std::memcmp(&mine.value, &other.value, sizeof(T)) == 0) mine.result |= 1u << l;
    });
  });
}

template <typename T>
struct Reduction {
  T value;
};

template <typename T, typename F>
void combine_reduce(void** operands, std::uint32_t mask) {
  T result = static_cast<Reduction<T>*>(operands[std::countr_zero(mask)])->value;
  for_lanes<Reduction<T>>(operands, mask & (mask - 1), [&](Reduction<T>& lane, int) { result = F()(result, lane.value); });
  for_lanes<Reduction<T>>(operands, mask, [&](Reduction<T>& lane, int) { lane.value = result; });
}

template <typename F, typename T>
T reduce(unsigned int mask, T value, const char* name) {
  Reduction<T> operands{value};
  warpcheck_meet(mask, combine_reduce<T, F>, &operands, name);
  return operands.value;
}

struct Add {
  template <typename T>
  T operator()(T x, T y) const {
    return static_cast<T>(static_cast<unsigned int>(x) + static_cast<unsigned int>(y));
  }
};
struct Min {
  template <typename T>
  T operator()(T x, T y) const { return x < y ? x : y; }
};
struct Max {
  template <typename T>
  T operator()(T x, T y) const { return x < y ? y : x; }
};
struct And {
  unsigned int operator()(unsigned int x, unsigned int y) const { return x & y; }
};
struct Or {
  unsigned int operator()(unsigned int x, unsigned int y) const { return x | y; }
};
struct Xor {
  unsigned int operator()(unsigned int x, unsigned int y) const { return x ^ y; }
};

}  // namespace warpcheck

inline void __syncwarp(unsigned int mask = warpcheck::kAllLanes) {
  warpcheck_meet(mask, warpcheck_sync_lanes, nullptr, "__syncwarp");
}

template <typename T>
T __shfl_sync(unsigned int mask, T value, int source, int width = 32) {
  const unsigned int first = warpcheck::lane() & ~(width - 1u);
  return warpcheck::shuffle(mask, value, first + (source & (width - 1u)), "__shfl_sync");
}

template <typename T>
T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {
  const unsigned int lane = warpcheck::lane(), place = lane & (width - 1u);
  return warpcheck::shuffle(mask, value, delta <= place ? lane - delta : lane, "__shfl_up_sync");
}

template <typename T>
T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {
  const unsigned int lane = warpcheck::lane(), place = lane & (width - 1u);
  return warpcheck::shuffle(mask, value, delta < width - place ? lane + delta : lane, "__shfl_down_sync");
}

template <typename T>
T __shfl_xor_sync(unsigned int mask, T value, int bits, int width = 32) {
  const unsigned int lane = warpcheck::lane(), source = (lane ^ bits) & 31, last = lane | (width - 1u);
  return warpcheck::shuffle(mask, value, source <= last ? source : lane, "__shfl_xor_sync");
}

inline unsigned int __ballot_sync(unsigned int mask, int predicate) {
  return warpcheck::ballot(mask, predicate != 0, "__ballot_sync");
}
inline int __all_sync(unsigned int mask, int predicate) {
  return warpcheck::ballot(mask, predicate != 0, "__all_sync") == mask;
}
inline int __any_sync(unsigned int mask, int predicate) {
  return warpcheck::ballot(mask, predicate != 0, "__any_sync") != 0;
}

// The lanes that run together with this one may be any that are here; the caller alone is always a right answer.
inline unsigned int __activemask() { return 1u << warpcheck::lane(); }

template <typename T>
unsigned int __match_any_sync(unsigned int mask, T value) {
  warpcheck::Match<T> operands{value, 0};
  warpcheck_meet(mask, warpcheck::combine_match<T>, &operands, "__match_any_sync");
  return operands.result;
}

template <typename T>
unsigned int __match_all_sync(unsigned int mask, T value, int* all) {
  const unsigned int same = __match_any_sync(mask, value);
  *all = same == mask;
  return *all ? mask : 0;
}

#define WARPCHECK_REDUCE(NAME, TYPE, FUNCTION)                                            \
  inline TYPE __reduce_##NAME##_sync(unsigned int mask, TYPE value) {                     \
    return warpcheck::reduce<warpcheck::FUNCTION>(mask, value, "__reduce_" #NAME "_sync"); \
  }
WARPCHECK_REDUCE(add, int, Add)
WARPCHECK_REDUCE(add, unsigned int, Add)
WARPCHECK_REDUCE(min, int, Min)
WARPCHECK_REDUCE(min, unsigned int, Min)
WARPCHECK_REDUCE(max, int, Max)
WARPCHECK_REDUCE(max, unsigned int, Max)
WARPCHECK_REDUCE(and, unsigned int, And)
WARPCHECK_REDUCE(or, unsigned int, Or)
WARPCHECK_REDUCE(xor, unsigned int, Xor)
#undef WARPCHECK_REDUCE
