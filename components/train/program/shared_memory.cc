// TensorFlow operations by which the processes of one host exchange tensors through memory that they share; shared_memory.py says
// what each is for. The memory is one anonymous file that the launcher made and every process inherited.
//
// Each rank writes what it gives into a slot of its own, counts its sequence number up, and waits for the numbers of the others.
// Slots alternate between two: when a rank writes one again, all others have taken part in the round between, and so have
// finished reading it.

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace ctrflow {
namespace {

using namespace tensorflow;
using shape_inference::InferenceContext;
using shape_inference::ShapeHandle;

// Address space of one slot, not memory: pages exist once they are written.
constexpr int64_t kSlotBytes = int64_t{1} << 32;
constexpr int64_t kChannels = 16;
constexpr int64_t kLine = 64;  // bytes that processors exchange at once
constexpr int64_t kHeadBytes = 4096;
constexpr int64_t kMostRanks = 256;
// The file: sequence numbers, slots, then the table. shared_memory.py makes it large enough.
constexpr int64_t kSlotsOffset = kChannels * kMostRanks * kLine;

int64_t TableOffset(int64_t ranks) { return kSlotsOffset + 2 * kChannels * ranks * kSlotBytes; }
// A rank that is waited for is usually microseconds away; sleeping and waking costs 50.
constexpr int kSpins = 2000;

int64_t Aligned(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The memory of a host as one process sees it.
class Memory {
 public:
  static absl::StatusOr<Memory*> Of(int file, int64_t rank, int64_t ranks) {
    static std::mutex lock;
    static auto* known = new std::map<int, std::unique_ptr<Memory>>();
    std::lock_guard<std::mutex> guard(lock);
    std::unique_ptr<Memory>& found = (*known)[file];
    if (found == nullptr) {
      const int64_t bytes = TableOffset(ranks);
      void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
      if (base == MAP_FAILED) {
        return absl::ResourceExhaustedError(absl::StrCat("shared memory of ", bytes, " bytes: ", strerror(errno)));
      }
      found.reset(new Memory(static_cast<char*>(base), rank, ranks));
    }
    return found.get();
  }

  const int64_t rank, ranks;

  // The slot of a rank for the round that this rank is in.
  char* Slot(int64_t channel, int64_t of) const {
    const int64_t turn = rounds_[channel] % 2;
    return base_ + kSlotsOffset + ((channel * 2 + turn) * ranks + of) * kSlotBytes;
  }

  void Begin(int64_t channel) { ++rounds_[channel]; }

  // This rank has written what it gives; returns when all have.
  void Meet(int64_t channel) {
    const uint32_t now = ++met_[channel];
    std::atomic<uint32_t>* own = Number(channel, rank);
    own->store(now, std::memory_order_release);
    syscall(SYS_futex, own, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
    for (int64_t other = 0; other < ranks; ++other) {
      std::atomic<uint32_t>* number = Number(channel, other);
      int spins = 0;
      // The difference, because numbers start again at 0 after the largest.
      for (uint32_t seen; static_cast<int32_t>((seen = number->load(std::memory_order_acquire)) - now) < 0;) {
        if (++spins < kSpins) {
          Pause();
        } else {
          syscall(SYS_futex, number, FUTEX_WAIT, seen, nullptr, nullptr, 0);
        }
      }
    }
  }

 private:
  Memory(char* base, int64_t rank, int64_t ranks) : rank(rank), ranks(ranks), base_(base) {}

  std::atomic<uint32_t>* Number(int64_t channel, int64_t of) const {
    return reinterpret_cast<std::atomic<uint32_t>*>(base_ + (channel * ranks + of) * kLine);
  }

  char* const base_;
  uint64_t rounds_[kChannels] = {};
  uint32_t met_[kChannels] = {};
};

// What the operations share: their place in the memory of the host.
class Exchange : public OpKernel {
 public:
  explicit Exchange(OpKernelConstruction* context) : OpKernel(context) {
    int64_t file, rank, ranks;
    OP_REQUIRES_OK(context, context->GetAttr("file", &file));
    OP_REQUIRES_OK(context, context->GetAttr("rank", &rank));
    OP_REQUIRES_OK(context, context->GetAttr("ranks", &ranks));
    OP_REQUIRES_OK(context, context->GetAttr("channel", &channel_));
    OP_REQUIRES(context, 0 <= rank && rank < ranks && ranks <= kMostRanks && 0 <= channel_ && channel_ < kChannels,
                absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of ", ranks, ", channel ", channel_)));
    const absl::StatusOr<Memory*> memory = Memory::Of(static_cast<int>(file), rank, ranks);
    OP_REQUIRES_OK(context, memory.status());
    memory_ = *memory;
  }

 protected:
  absl::Status CheckBytes(int64_t bytes) const {
    if (bytes <= kSlotBytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes at once, at most ", kSlotBytes, " go through shared memory"));
  }

  Memory* memory_;
  int64_t channel_;
};

// The means over ranks of tensors that have the same shapes on all ranks. Each rank sums one part of them, in the order of
// ranks, so that all ranks get the same bits.
class HostMean : public Exchange {
 public:
  using Exchange::Exchange;

  void Compute(OpKernelContext* context) override {
    int64_t count = 0;
    for (int i = 0; i < context->num_inputs(); ++i) count += context->input(i).NumElements();
    OP_REQUIRES_OK(context, CheckBytes(count * sizeof(float)));
    memory_->Begin(channel_);
    char* own = memory_->Slot(channel_, memory_->rank);
    for (int i = 0; i < context->num_inputs(); ++i) {
      const int64_t bytes = context->input(i).NumElements() * sizeof(float);
      std::memcpy(own, context->input(i).flat<float>().data(), bytes);
      own += bytes;
    }
    memory_->Meet(channel_);

    const int64_t first = First(count, memory_->rank), last = First(count, memory_->rank + 1);
    const auto floats = [&](int64_t rank) { return reinterpret_cast<float*>(memory_->Slot(channel_, rank)); };
    std::vector<float> total_of(floats(0) + first, floats(0) + last);
    float* __restrict total = total_of.data();
    for (int64_t rank = 1; rank < memory_->ranks; ++rank) {
      const float* __restrict add = floats(rank) + first;
      for (int64_t i = 0; i < last - first; ++i) total[i] += add[i];
    }
    float* __restrict mean = floats(memory_->rank) + first;
    const float share = 1.0f / static_cast<float>(memory_->ranks);
    for (int64_t i = 0; i < last - first; ++i) mean[i] = total[i] * share;
    memory_->Meet(channel_);

    int64_t begin = 0, rank = 0;
    for (int i = 0; i < context->num_inputs(); ++i) {
      Tensor* output;
      OP_REQUIRES_OK(context, context->allocate_output(i, context->input(i).shape(), &output));
      float* to = output->flat<float>().data();
      const int64_t end = begin + output->NumElements();
      while (begin < end) {
        while (First(count, rank + 1) <= begin) ++rank;
        const int64_t stop = std::min(end, First(count, rank + 1));
        to = std::copy(floats(rank) + begin, floats(rank) + stop, to);
        begin = stop;
      }
    }
  }

 private:
  // Where the part of a rank begins, at a whole line.
  int64_t First(int64_t count, int64_t rank) const {
    if (rank == memory_->ranks) return count;
    constexpr int64_t kFloats = kLine / sizeof(float);
    return std::min(count, count * rank / memory_->ranks / kFloats * kFloats);
  }
};

// Tensors of all ranks, one after the other by rank; they may differ in their first dimension.
class HostGather : public Exchange {
 public:
  using Exchange::Exchange;

  void Compute(OpKernelContext* context) override {
    const int inputs = context->num_inputs();
    OP_REQUIRES(context, inputs * sizeof(int64_t) <= kHeadBytes, absl::InvalidArgumentError("too many tensors"));
    int64_t bytes = kHeadBytes;
    for (int i = 0; i < inputs; ++i) bytes += Aligned(context->input(i).tensor_data().size());
    OP_REQUIRES_OK(context, CheckBytes(bytes));
    memory_->Begin(channel_);
    char* own = memory_->Slot(channel_, memory_->rank);
    char* to = own + kHeadBytes;
    for (int i = 0; i < inputs; ++i) {
      const auto data = context->input(i).tensor_data();
      reinterpret_cast<int64_t*>(own)[i] = context->input(i).dim_size(0);
      std::memcpy(to, data.data(), data.size());
      to += Aligned(data.size());
    }
    memory_->Meet(channel_);

    std::vector<const char*> from(memory_->ranks);
    for (int64_t rank = 0; rank < memory_->ranks; ++rank) from[rank] = memory_->Slot(channel_, rank) + kHeadBytes;
    for (int i = 0; i < inputs; ++i) {
      const auto rows = [&](int64_t rank) { return reinterpret_cast<const int64_t*>(memory_->Slot(channel_, rank))[i]; };
      TensorShape shape = context->input(i).shape();
      shape.set_dim(0, 1);
      const int64_t row_bytes = shape.num_elements() * DataTypeSize(context->input(i).dtype());
      int64_t all = 0;
      for (int64_t rank = 0; rank < memory_->ranks; ++rank) all += rows(rank);
      shape.set_dim(0, all);
      Tensor* output;
      OP_REQUIRES_OK(context, context->allocate_output(i, shape, &output));
      char* at = const_cast<char*>(output->tensor_data().data());
      for (int64_t rank = 0; rank < memory_->ranks; ++rank) {
        const int64_t size = rows(rank) * row_bytes;
        std::memcpy(at, from[rank], size);
        at += size;
        from[rank] += Aligned(size);
      }
    }
  }
};

// Rows for every rank, ordered by rank, `splits` saying how many for each -> the rows that all ranks have for this one, by rank.
class HostAlltoall : public Exchange {
 public:
  using Exchange::Exchange;

  void Compute(OpKernelContext* context) override {
    const Tensor &rows = context->input(0), &splits = context->input(1);
    const int64_t ranks = memory_->ranks;
    OP_REQUIRES(context, rows.dims() > 0 && splits.NumElements() == ranks,
                absl::InvalidArgumentError(absl::StrCat(splits.NumElements(), " splits for ", ranks, " ranks")));
    const int32_t* split = splits.flat<int32_t>().data();
    int64_t sum = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      OP_REQUIRES(context, split[rank] >= 0, absl::InvalidArgumentError("a split is negative"));
      sum += split[rank];
    }
    OP_REQUIRES(context, sum == rows.dim_size(0), absl::InvalidArgumentError(absl::StrCat(sum, " of ", rows.dim_size(0), " rows split")));
    const auto data = rows.tensor_data();
    OP_REQUIRES_OK(context, CheckBytes(kHeadBytes + data.size()));
    memory_->Begin(channel_);
    char* own = memory_->Slot(channel_, memory_->rank);
    std::copy_n(split, ranks, reinterpret_cast<int32_t*>(own));
    std::memcpy(own + kHeadBytes, data.data(), data.size());
    memory_->Meet(channel_);

    Tensor *received, *counts;
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({ranks}), &counts));
    int32_t* count = counts->flat<int32_t>().data();
    int64_t all = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) all += count[rank] = Split(rank)[memory_->rank];
    TensorShape shape = rows.shape();
    shape.set_dim(0, 1);
    const int64_t row_bytes = shape.num_elements() * DataTypeSize(rows.dtype());
    shape.set_dim(0, all);
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &received));
    char* at = const_cast<char*>(received->tensor_data().data());
    for (int64_t rank = 0; rank < ranks; ++rank) {
      int64_t before = 0;
      for (int64_t other = 0; other < memory_->rank; ++other) before += Split(rank)[other];
      const int64_t size = count[rank] * row_bytes;
      std::memcpy(at, memory_->Slot(channel_, rank) + kHeadBytes + before * row_bytes, size);
      at += size;
    }
  }

 private:
  const int32_t* Split(int64_t rank) const { return reinterpret_cast<const int32_t*>(memory_->Slot(channel_, rank)); }
};

// A tensor's numbers in the memory of the host.
class MappedBuffer : public TensorBuffer {
 public:
  MappedBuffer(void* data, size_t bytes) : TensorBuffer(data), bytes_(bytes) {}
  ~MappedBuffer() override { munmap(data(), bytes_); }
  size_t size() const override { return bytes_; }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(AllocationDescription*) const override {}

 private:
  const size_t bytes_;
};

// Makes a variable [rows, width] whose numbers all processes of the host share. Whoever reads all of it reads a copy, as after a
// sparse update; what assigns to it whole would give it numbers of its own again.
class HostTable : public OpKernel {
 public:
  explicit HostTable(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("file", &file_));
    OP_REQUIRES_OK(context, context->GetAttr("ranks", &ranks_));
    OP_REQUIRES_OK(context, context->GetAttr("rows", &rows_));
    OP_REQUIRES_OK(context, context->GetAttr("width", &width_));
  }

  void Compute(OpKernelContext* context) override {
    core::RefCountPtr<Var> variable;
    OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, 0), &variable));
    const int64_t bytes = rows_ * width_ * sizeof(float);
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, static_cast<int>(file_), TableOffset(ranks_));
    OP_REQUIRES(context, data != MAP_FAILED,
                absl::ResourceExhaustedError(absl::StrCat("a shared table of ", bytes, " bytes: ", strerror(errno))));
    const core::RefCountPtr<MappedBuffer> buffer(new MappedBuffer(data, bytes));
    mutex_lock lock(*variable->mu());
    *variable->tensor() = Tensor(DT_FLOAT, TensorShape({rows_, width_}), buffer.get());
    variable->copy_on_read_mode.store(true);
    variable->is_initialized = true;
  }

 private:
  int64_t file_, ranks_, rows_, width_;
};

// A first dimension that only the ranks together know.
absl::Status GatheredShape(InferenceContext* c, int input) {
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(input), 1, &shape));
  TF_RETURN_IF_ERROR(c->ReplaceDim(shape, 0, c->UnknownDim(), &shape));
  c->set_output(input, shape);
  return absl::OkStatus();
}

// An operation of class Exchange: what says where its memory is, and that it must run even when nobody uses what it gives.
#define REGISTER_EXCHANGE(name) \
  REGISTER_OP(name).Attr("file: int").Attr("rank: int").Attr("ranks: int").Attr("channel: int").SetIsStateful()

REGISTER_EXCHANGE("CtrflowHostMean")
    .Input("tensors: N * float")
    .Output("means: N * float")
    .Attr("N: int >= 1")
    .SetShapeFn([](InferenceContext* c) {
      for (int i = 0; i < c->num_inputs(); ++i) c->set_output(i, c->input(i));
      return absl::OkStatus();
    });

REGISTER_EXCHANGE("CtrflowHostGather")
    .Input("tensors: T")
    .Output("gathered: T")
    .Attr("T: list({float, int32})")
    .SetShapeFn([](InferenceContext* c) {
      for (int i = 0; i < c->num_inputs(); ++i) TF_RETURN_IF_ERROR(GatheredShape(c, i));
      return absl::OkStatus();
    });

REGISTER_EXCHANGE("CtrflowHostAlltoall")
    .Input("rows: T")
    .Input("splits: int32")
    .Output("received: T")
    .Output("counts: int32")
    .Attr("T: {float, int32}")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(1, c->input(1));
      return GatheredShape(c, 0);
    });

REGISTER_OP("CtrflowHostTable")
    .Input("table: resource")
    .Attr("file: int")
    .Attr("ranks: int")
    .Attr("rows: int >= 1")
    .Attr("width: int >= 1")
    .SetIsStateful()
    .SetShapeFn(shape_inference::NoOutputs);

REGISTER_KERNEL_BUILDER(Name("CtrflowHostTable").Device(DEVICE_CPU), HostTable);
REGISTER_KERNEL_BUILDER(Name("CtrflowHostMean").Device(DEVICE_CPU), HostMean);
REGISTER_KERNEL_BUILDER(Name("CtrflowHostGather").Device(DEVICE_CPU), HostGather);
REGISTER_KERNEL_BUILDER(Name("CtrflowHostAlltoall").Device(DEVICE_CPU), HostAlltoall);

}  // namespace
}  // namespace ctrflow
