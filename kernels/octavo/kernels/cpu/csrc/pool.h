// Threads that share out the tasks of one call after another.
//
// Between the parallel parts of a step, which are some microseconds apart, threads spin; after SPIN_PAUSES without work
// they sleep, so that they take no core from the rest of the machine.  Tasks are handed out one by one: a thread that
// the system has put aside delays a call by no more than the task it holds.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {

constexpr int SPIN_PAUSES = 2000;

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

class Pool {
 public:
  explicit Pool(int num_threads) {
    for (int i = 1; i < num_threads; i++) threads_.emplace_back([this, i] { work(i); });
  }

  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      is_closed_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  int size() const { return int(threads_.size()) + 1; }

  // Calls task(index, thread) for every index below num_tasks; returns when all are done.
  template <class Task>
  void run(int num_tasks, Task&& task) {
    if (threads_.empty() || num_tasks < 2) {
      for (int i = 0; i < num_tasks; i++) task(i, 0);
      return;
    }
    call_ = [](void* self, int index, int thread) {
      (*static_cast<std::remove_reference_t<Task>*>(self))(index, thread);
    };
    self_ = &task;
    num_tasks_ = num_tasks;
    num_done_.store(0, std::memory_order_relaxed);
    uint32_t job = ++job_;
    next_.store(uint64_t(job) << 32, std::memory_order_seq_cst);
    if (num_asleep_.load(std::memory_order_seq_cst)) {
      { std::lock_guard<std::mutex> lock(mutex_); }
      wake_.notify_all();
    }
    take(job, 0);
    for (int spins = 0; num_done_.load(std::memory_order_acquire) != num_tasks; spins++) {
      if (spins < SPIN_PAUSES) pause();
      else std::this_thread::yield();
    }
    // No index is below this one, so a thread that is late cannot claim a task with the fields of the next job.
    next_.store(uint64_t(job) << 32 | NONE_LEFT, std::memory_order_seq_cst);
  }

 private:
  using Call = void (*)(void*, int, int);
  static constexpr uint64_t NONE_LEFT = 0x7fffffff;

  // A job's fields change only after all of its tasks are done, so a task that was claimed for `job` has its fields.
  void take(uint32_t job, int thread) {
    Call call = call_;
    void* self = self_;
    int num_tasks = num_tasks_;
    uint64_t next = next_.load(std::memory_order_acquire);
    while (uint32_t(next >> 32) == job && int(uint32_t(next)) < num_tasks) {
      if (next_.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel)) {
        call(self, int(uint32_t(next)), thread);
        num_done_.fetch_add(1, std::memory_order_acq_rel);
        next = next_.load(std::memory_order_acquire);
      }
    }
  }

  uint32_t current() const { return uint32_t(next_.load(std::memory_order_seq_cst) >> 32); }

  void work(int thread) {
    uint32_t seen = 0;
    for (;;) {
      int spins = 0;
      while (current() == seen && spins++ < SPIN_PAUSES) pause();
      if (current() == seen) {
        std::unique_lock<std::mutex> lock(mutex_);
        num_asleep_.fetch_add(1, std::memory_order_seq_cst);
        wake_.wait(lock, [&] { return is_closed_ || current() != seen; });
        num_asleep_.fetch_sub(1, std::memory_order_seq_cst);
        if (is_closed_) return;
      }
      seen = current();
      take(seen, thread);
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_closed_ = false;
  std::atomic<int> num_asleep_{0};
  std::atomic<uint64_t> next_{0};
  std::atomic<int> num_done_{0};
  std::atomic<Call> call_{nullptr};
  std::atomic<void*> self_{nullptr};
  std::atomic<int> num_tasks_{0};
  uint32_t job_ = 0;
};

}  // namespace octavo
