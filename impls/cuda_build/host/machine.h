// The state of one launch, and of everything in it. Private to the runtime.
#pragma once

#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "context.h"
#include "runtime.h"

namespace warpcheck {

constexpr int kLanes = 32;
constexpr int kMaxWarps = 32;
constexpr int kMaxThreads = kLanes * kMaxWarps;
constexpr int kBarriers = 16;

struct Block;

struct Copy {  // a cp.async that has not landed
  void* shared;
  const void* global;
  int bytes, valid_bytes, group;
};

// An access, for the race detector.
struct Mark {
  std::uint32_t thread;  // 1 + block number * kMaxThreads + thread number; 0: none
  std::uint32_t epoch;   // barriers of the block before it
  std::uint32_t clock;   // __syncwarps of the lane before it
  std::uint8_t bytes;    // of its granule, as bits
  bool atomic;
};

constexpr int kGranule = 2;  // bytes that share a Cell

struct Cell {
  Mark write, reads[2];
  std::uint8_t written;  // bytes, as bits
};

// What is ordered before something, across blocks: by __threadfence and atomics.
struct Knowledge {
  std::unordered_map<std::uint32_t, std::uint32_t> blocks;   // accesses of a block in epochs before this one
  std::unordered_map<std::uint32_t, std::uint32_t> threads;  // accesses of a thread (as in Mark) up to this epoch

  void join(const Knowledge& other);
  bool covers(const Mark& mark) const;
};

struct Fiber : Thread {
  Context context;
  bool has_stack = false;
  Block* owner;
  int warp;
  int groups;  // cp.async groups committed
  std::vector<Copy> copies;
  std::uint32_t clock;
  std::uint32_t known[kLanes];  // lane l's accesses before its clock was this are ordered before what this thread does now
  Knowledge released;           // what its last fence lets go of with the atomics after it
  Knowledge pending;            // what its atomics have picked up, which the next fence makes
  Knowledge acquired;           // … this
};

// Lanes of one warp on their way to one warp operation.
struct Meeting {
  std::uint32_t mask, arrived;
  Combine combine;
  const char* name;
  void* operands[kLanes];
};

struct Warp {
  std::uint32_t live, runnable;
  std::uint32_t meetings_used;  // bits
  Meeting meetings[kLanes];     // a lane waits in one at most
};

struct Barrier {
  int arrived, expected, kind, accumulated, result;
  const char* file;  // where the first thread arrived
  int line;
  std::uint32_t waiting[kMaxWarps];
};

struct Block {
  Index index;
  bool active = false;
  int threads, warp_count, live;
  Warp warps[kMaxWarps];
  Barrier barriers[kBarriers];
  std::unique_ptr<Fiber[]> fibers;  // kMaxThreads
  char* stacks;                     // of all fibers
  std::vector<unsigned char> dynamic_shared, saved_static;
  unsigned char* dynamic_begin;
  std::uint32_t number, epoch;
  Knowledge acquired;  // by all threads, at a barrier
  std::vector<Cell> dynamic_cells, static_cells;  // the state of shared memory, if it is checked
};

// One for each operating system thread that launches, kept between launches for its stacks.
struct Machine {
  Launch* launch;
  Context main;
  sigjmp_buf escape;
  volatile bool inside = false;  // a fiber runs
  int status;
  char* message;
  std::size_t message_size;

  std::vector<std::unique_ptr<Block>> blocks;  // those in flight
  Block* current = nullptr;                    // whose static shared memory is in place
  unsigned char* static_shared;
  std::uint64_t next_block, block_count, random_state;
  unsigned int pauses;

  std::unordered_map<std::uintptr_t, std::unique_ptr<Cell[]>> pages;  // the state of global memory
  std::unordered_map<std::uintptr_t, Knowledge> left_at;              // by atomics, at their addresses
  bool fenced = false;  // some thread has: until then there is nothing to know
  std::uintptr_t last_page = 0;
  Cell* last_cells = nullptr;

  std::uint64_t random();
  void run(Launch& what);
  void start(Block& block);
  void enter(Block& block);
  Fiber* pick(const Fiber* after);
  Fiber* pick_any();
  void resume(Fiber& next);
  void give_way(Fiber& self);
  [[noreturn]] void leave(Fiber& self);
  void release(Block& block, Barrier& barrier);
  Barrier& arrive(Fiber& self, int id, int count, int kind, int predicate, const char* file, int line);
  [[noreturn]] void fail(int status, const char* format, std::va_list arguments);
  [[noreturn]] void fail_stuck();

  Machine();
  ~Machine();
};

extern __thread Machine* machine __attribute__((tls_model("initial-exec")));  // null until this thread launches

constexpr std::size_t kStack = WARPCHECK_STACK_KIB * 1024;
constexpr std::size_t kGuard = 4096;
constexpr std::size_t kStackStride = kGuard + kStack;
constexpr std::size_t kMargin = 4096;  // around dynamic shared memory

inline bool checked(const Launch& launch) { return launch.check_races || launch.check_memory; }

// A fiber's access, if the launch is checked.
void check_access(Fiber& fiber, const void* address, std::size_t bytes, std::size_t alignment, int access);
void start_checking(Block& block);
void order_by_atomic(Fiber& fiber, std::uintptr_t address);
void order_by_barrier(Block& block);

void install_handlers();

// Ends a launch that uses more CPU time than it may. Lives as long as the launch.
class Watchdog {
 public:
  explicit Watchdog(double seconds);
  ~Watchdog();

 private:
  timer_t timer_;
  bool armed_;
};

}  // namespace warpcheck
