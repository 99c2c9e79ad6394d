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
constexpr unsigned int kMaxCluster = 16;
constexpr int kAgents = 64;                // that a block's bulk copies are for the race detector, in turn
constexpr int kNumbers = 2 * kMaxThreads;  // of a block: its threads', then its agents'

struct Block;
struct Fiber;

struct Copy {  // a cp.async that has not landed
  void* shared;
  const void* global;
  int bytes, valid_bytes, group;
};

// An access, for the race detector.
struct Mark {
  std::uint32_t thread;  // 1 + block number * kNumbers + number of the thread or agent; 0: none
  std::uint32_t epoch;   // barriers of the block before it
  std::uint32_t clock;   // __syncwarps, fences and arrivals of the thread before it
  std::uint8_t bytes;    // of its granule, as bits
  bool atomic;
};

constexpr int kGranule = 2;  // bytes that share a Cell

struct Cell {
  Mark write, reads[2];
  std::uint8_t written;  // bytes, as bits
};

// What is ordered before something other than by barriers of a block or a cluster: by fences and atomics, and by mbarriers.
struct Knowledge {
  std::unordered_map<std::uint32_t, std::uint32_t> blocks;   // accesses of a block in epochs before this one
  std::unordered_map<std::uint32_t, std::uint32_t> threads;  // accesses of a thread or agent (as in Mark) before this clock

  void join(const Knowledge& other);
  bool covers(const Mark& mark) const;
};

// Where something lies in a block's shared memory. Its address depends on which block runs.
struct SharedPlace {
  Block* block;  // null: not in the shared memory of this cluster
  bool dynamic;
  std::size_t offset;
};

// Who accesses memory: a thread, or a bulk copy that it started.
struct Actor {
  Fiber& fiber;
  std::uint32_t number, clock;  // as in Mark
  bool is_agent() const { return (number - 1) % kNumbers >= kMaxThreads; }
};

struct Mbarrier {
  std::uint32_t phase;  // phases completed
  std::int64_t expected, pending, transactions;
  Knowledge known;  // what arrivals have released
  Mark initialised;
  std::vector<Fiber*> waiting;
  int line;  // of the last wait
};

struct Load {  // a bulk copy to shared memory that has not landed
  SharedPlace to;
  const void* from;
  std::uint32_t bytes;
  Mbarrier* barrier;
  std::uint32_t agent, clock;
};

struct Store {  // a bulk copy from shared memory that has not been waited for
  void* to;
  SharedPlace from;
  std::uint32_t bytes;
  int group;
  bool landed;
  std::uint32_t reader, reader_clock, writer, writer_clock;  // its agents
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
  std::uint32_t fenced;         // its own accesses before this clock are what its last fence lets go of
  std::uint32_t proxy_fenced, proxy_epoch, inits_fenced;  // clock and epoch of its last fence.proxy.async; of any for mbarriers
  std::uint32_t cluster_arrived, cluster_waited;          // phases of the cluster's barrier
  std::uint32_t cluster_released[3];  // `fenced` at its arrival in phase i (mod 3)
  int store_groups;                   // of bulk copies, committed
  std::vector<Store> stores;
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
  std::uint32_t cluster_waiting;
  std::uint32_t cluster_phase;  // at whose barrier a lane has arrived last, and where
  int cluster_line;
  Meeting meetings[kLanes];     // a lane waits in one at most
};

struct Barrier {
  int arrived, expected, kind, accumulated, result;
  const char* file;  // where the first thread arrived
  int line;
  std::uint32_t waiting[kMaxWarps];
};

struct Cluster {
  Block* blocks[kMaxCluster];
  int arrived, live;  // threads
  std::uint32_t phase;  // phases of the barrier completed
  Knowledge known;      // what arrivals have released
};

struct Block {
  Index index;
  Cluster* cluster;
  unsigned int rank;
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
  std::unordered_map<std::uintptr_t, Mbarrier> mbarriers;  // by place
  std::uint32_t copies_started;
  bool peers_run;       // a cluster barrier has said so
  bool shared_is_seen;  // by other blocks
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

  std::vector<std::unique_ptr<Block>> blocks;  // those in flight, clusters side by side
  std::vector<std::unique_ptr<Cluster>> clusters;
  std::vector<Load> loads;
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
  void start_cluster(std::size_t first);
  void start(Block& block);
  void enter(Block& block);
  Fiber* pick(const Fiber* after);
  Fiber* pick_any();
  void land(std::size_t load);
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

// An access, if the launch is checked.
void check_access(const Actor& actor, const void* address, std::size_t bytes, std::size_t alignment, int access);
Actor thread_actor(Fiber& fiber);
Actor new_agent(Fiber& fiber);
void start_checking(Block& block);
void check_exit(Fiber& last);
bool ordered(const Mark& before, const Fiber& now);
void landed(const SharedPlace& place, std::size_t bytes);  // there is something to read now

SharedPlace find_shared(const Block& self, const void* address, std::size_t bytes);
unsigned char* address_of(const SharedPlace& place);
void arrive_if_all(Cluster& cluster);
void leave_cluster(Fiber& self);
void leave_copies(Fiber& self);

void release(Fiber& fiber);  // what a fence does before
void acquire(Fiber& fiber, const Knowledge& known);
void order_by_atomic(Fiber& fiber, std::uintptr_t address);
void order_by_barrier(Block& block);

// The launch may not be ended while one of these holds the allocator's lock.
class Uninterrupted {
 public:
  Uninterrupted() { machine->inside = false; }
  ~Uninterrupted() { machine->inside = true; }
};

inline Fiber& this_fiber() { return *static_cast<Fiber*>(warpcheck_thread); }

void suspend(Fiber& self);  // until somebody makes it runnable

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
