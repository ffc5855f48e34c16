// TensorFlow operations for the embedding part of a training step; kernels.py says what each is for.
//
// Shapes: B rows of the batch, F fields, N = B * F cells, U distinct ids, D embedding size, E = 1 + D.
//
// Every output element is computed by one thread, in one order: results do not depend on the number of threads.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/threadpool.h"

namespace ctrflow {
namespace {

using namespace tensorflow;
using shape_inference::InferenceContext;
using shape_inference::ShapeHandle;

// How far ahead rows in random order are asked for: about the latency of the last cache over the time a row takes.
constexpr int64_t kPrefetchDistance = 8;

// Calls work(first, last) over parts of [0, total); `cost` is about the cycles of one unit.
template <typename Work>
void Parallel(OpKernelContext* context, int64_t total, int64_t cost, const Work& work) {
  if (total == 0) return;
  context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(total, cost, work);
}

// The same over distinct ids, in parts of about equal numbers of cells.
template <typename Work>
void ParallelByCells(OpKernelContext* context, const int32_t* starts, int64_t distinct, int64_t cost, const Work& work) {
  const int64_t cells = starts[distinct];
  constexpr int64_t kCellsAPart = 512;
  const int64_t parts = std::max<int64_t>(1, cells / kCellsAPart);
  const auto first_of = [&](int64_t part) {
    if (part == parts) return distinct;
    return static_cast<int64_t>(std::lower_bound(starts, starts + distinct, cells * part / parts) - starts);
  };
  Parallel(context, parts, cost * kCellsAPart, [&](int64_t first, int64_t last) { work(first_of(first), first_of(last)); });
}

inline void Prefetch(const float* row, int64_t width) {
  for (int64_t i = 0; i < width; i += 16) __builtin_prefetch(row + i);
}

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckIds(const int32_t* ids, int64_t count, int64_t rows) {
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= rows) {
      return Invalid("id ", ids[i], " is outside 0..", rows - 1);
    }
  }
  return absl::OkStatus();
}

// ids -> the distinct ones, ascending; which of them each cell uses; the cells sorted by id (equal ids in order), and
// where the cells of each distinct id start. A radix sort by 11 bits of (id, cell), as wide as the largest id needs.
class DistinctIds : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& ids = context->input(0);
    const int64_t cells = ids.NumElements();
    const int32_t* id = ids.flat<int32_t>().data();
    Tensor *index, *order;
    OP_REQUIRES_OK(context, context->allocate_output(1, ids.shape(), &index));
    OP_REQUIRES_OK(context, context->allocate_output(2, TensorShape({cells}), &order));
    uint32_t all_bits = 0;
    for (int64_t i = 0; i < cells; ++i) all_bits |= static_cast<uint32_t>(id[i]);
    OP_REQUIRES(context, (all_bits >> 31) == 0, Invalid("an id is negative"));

    std::vector<uint64_t> sorted(cells), other(cells);
    for (int64_t i = 0; i < cells; ++i) sorted[i] = (static_cast<uint64_t>(id[i]) << 32) | static_cast<uint64_t>(i);
    constexpr int kBits = 11, kBuckets = 1 << kBits;
    for (int shift = 32; (static_cast<uint64_t>(all_bits) << 32) >> shift; shift += kBits) {
      int32_t position[kBuckets] = {};
      for (const uint64_t pair : sorted) ++position[(pair >> shift) & (kBuckets - 1)];
      int32_t sum = 0;
      for (int32_t& count : position) sum += std::exchange(count, sum);
      for (const uint64_t pair : sorted) other[position[(pair >> shift) & (kBuckets - 1)]++] = pair;
      sorted.swap(other);
    }

    int64_t distinct = 0;
    for (int64_t i = 0; i < cells; ++i) distinct += i == 0 || (sorted[i] >> 32) != (sorted[i - 1] >> 32);
    Tensor *unique, *starts;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({distinct}), &unique));
    OP_REQUIRES_OK(context, context->allocate_output(3, TensorShape({distinct + 1}), &starts));
    int32_t* unique_of = unique->flat<int32_t>().data();
    int32_t* index_of = index->flat<int32_t>().data();
    int32_t* order_of = order->flat<int32_t>().data();
    int32_t* start_of = starts->flat<int32_t>().data();
    int32_t current = -1;
    for (int64_t i = 0; i < cells; ++i) {
      if (i == 0 || (sorted[i] >> 32) != (sorted[i - 1] >> 32)) {
        ++current;
        unique_of[current] = static_cast<int32_t>(sorted[i] >> 32);
        start_of[current] = static_cast<int32_t>(i);
      }
      order_of[i] = static_cast<int32_t>(sorted[i]);
      index_of[order_of[i]] = current;
    }
    start_of[distinct] = static_cast<int32_t>(cells);
  }
};

// The first `width` columns of a table's rows.
class GatherRows : public OpKernel {
 public:
  explicit GatherRows(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("width", &width_));
  }

  void Compute(OpKernelContext* context) override {
    core::RefCountPtr<Var> variable;
    OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, 0), &variable));
    tf_shared_lock lock(*variable->mu());
    const Tensor& table = *variable->tensor();
    const Tensor& ids = context->input(1);
    const int64_t count = ids.NumElements();
    OP_REQUIRES(context, table.dims() == 2 && table.dim_size(1) >= width_,
                Invalid("a table of shape ", table.shape().DebugString(), " has no ", width_, " columns"));
    Tensor* rows;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({count, width_}), &rows));
    const int64_t stride = table.dim_size(1), width = width_;
    const float* from = table.flat<float>().data();
    const int32_t* id = ids.flat<int32_t>().data();
    float* to = rows->flat<float>().data();
    OP_REQUIRES_OK(context, CheckIds(id, count, table.dim_size(0)));
    Parallel(context, count, 4 * width, [=](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        if (i + kPrefetchDistance < last) Prefetch(from + id[i + kPrefetchDistance] * stride, width);
        std::copy_n(from + id[i] * stride, width, to + i * width);
      }
    });
  }

 private:
  int64_t width_;
};

// kSize is D when it is known at compile time, else 0.
template <int kSize>
void Terms(const float* rows, const int32_t* index, const float* values, int64_t fields, int64_t any_size, int64_t first,
           int64_t last, float* logits, float* scaled, float* sums) {
  const int64_t size = kSize ? kSize : any_size;
  std::vector<float> squares_of(size);
  float* __restrict squares = squares_of.data();
  for (int64_t b = first; b < last; ++b) {
    float* __restrict sum = sums + b * size;
    std::fill_n(sum, size, 0.0f);
    std::fill_n(squares, size, 0.0f);
    float logit = 0.0f;
    for (int64_t cell = b * fields; cell < (b + 1) * fields; ++cell) {
      const float* __restrict row = rows + index[cell] * (1 + size);
      const float value = values[cell];
      float* __restrict out = scaled + cell * size;
      logit += value * row[0];
      for (int64_t d = 0; d < size; ++d) {
        const float x = value * row[1 + d];
        out[d] = x;
        sum[d] += x;
        squares[d] += x * x;
      }
    }
    float pairs = 0.0f;
    for (int64_t d = 0; d < size; ++d) pairs += sum[d] * sum[d] - squares[d];
    logits[b] = logit + 0.5f * pairs;
  }
}

// Rows of the distinct ids -> first plus second order logits [B], embeddings scaled by their values [B, F * D] and
// their sums over fields [B, D].
class EmbeddingTerms : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor &rows = context->input(0), &index = context->input(1), &values = context->input(2);
    OP_REQUIRES(context, rows.dims() == 2 && rows.dim_size(1) > 1 && index.dims() == 2 && index.shape() == values.shape(),
                Invalid("expected rows [U, 1 + D], index and values [B, F], got ", rows.shape().DebugString(), ", ",
                                        index.shape().DebugString(), ", ", values.shape().DebugString()));
    const int64_t batch = index.dim_size(0), fields = index.dim_size(1), size = rows.dim_size(1) - 1;
    OP_REQUIRES_OK(context, CheckIds(index.flat<int32_t>().data(), batch * fields, rows.dim_size(0)));
    Tensor *logits, *scaled, *sums;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({batch}), &logits));
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({batch, fields * size}), &scaled));
    OP_REQUIRES_OK(context, context->allocate_output(2, TensorShape({batch, size}), &sums));
    const auto terms = size == 8 ? Terms<8> : size == 16 ? Terms<16> : size == 32 ? Terms<32> : size == 64 ? Terms<64> : Terms<0>;
    Parallel(context, batch, fields * (10 + size), [&](int64_t first, int64_t last) {
      terms(rows.flat<float>().data(), index.flat<int32_t>().data(), values.flat<float>().data(), fields, size, first, last,
            logits->flat<float>().data(), scaled->flat<float>().data(), sums->flat<float>().data());
    });
  }
};

struct Incoming {
  const float *rows, *values, *sums, *of_logits, *of_scaled;
  const int32_t *order, *starts;
  int64_t cells, fields;
};

// The gradient of x_cd = v_c * row_d from the pairs is v_c * g * (sum_d - x_cd); its second part sums to
// row_d * (sum over cells of g * v_c^2), so the scaled embeddings are not read again.
template <int kSize>
void TermsGrad(const Incoming& in, int64_t any_size, int64_t first, int64_t last, float* gradient) {
  const int64_t size = kSize ? kSize : any_size;
  std::vector<float> total_of(size);
  float* __restrict total = total_of.data();
  for (int64_t u = first; u < last; ++u) {
    std::fill_n(total, size, 0.0f);
    float first_order = 0.0f, squares = 0.0f;
    for (int64_t i = in.starts[u]; i < in.starts[u + 1]; ++i) {
      if (i + kPrefetchDistance < in.cells) Prefetch(in.of_scaled + in.order[i + kPrefetchDistance] * size, size);
      const int64_t cell = in.order[i], b = static_cast<uint32_t>(cell) / static_cast<uint32_t>(in.fields);
      const float value = in.values[cell], weight = value * in.of_logits[b];
      const float* __restrict deep = in.of_scaled + cell * size;
      const float* __restrict sum = in.sums + b * size;
      first_order += weight;
      squares += weight * value;
      for (int64_t d = 0; d < size; ++d) total[d] += value * deep[d] + weight * sum[d];
    }
    const float* __restrict row = in.rows + u * (1 + size);
    float* __restrict out = gradient + u * (1 + size);
    out[0] = first_order;
    for (int64_t d = 0; d < size; ++d) out[1 + d] = total[d] - squares * row[1 + d];
  }
}

// The gradient of EmbeddingTerms by the rows, already summed over equal ids.
class EmbeddingTermsGrad : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor &rows = context->input(0), &values = context->input(1), &order = context->input(2), &starts = context->input(3);
    const int64_t distinct = rows.dim_size(0), size = rows.dim_size(1) - 1, cells = order.NumElements();
    OP_REQUIRES(context, values.dims() == 2 && values.NumElements() == cells && starts.NumElements() == distinct + 1,
                Invalid("cells of another batch: ", values.shape().DebugString(), " values, ", cells, " cells, ",
                                        starts.NumElements(), " starts of ", distinct, " rows"));
    OP_REQUIRES(context,
                context->input(4).NumElements() == values.dim_size(0) * size &&
                    context->input(5).NumElements() == values.dim_size(0) && context->input(6).NumElements() == cells * size,
                Invalid("gradients of another batch"));
    Tensor* gradient;
    OP_REQUIRES_OK(context, context->allocate_output(0, rows.shape(), &gradient));
    const Incoming in{rows.flat<float>().data(),
                      values.flat<float>().data(),
                      context->input(4).flat<float>().data(),
                      context->input(5).flat<float>().data(),
                      context->input(6).flat<float>().data(),
                      order.flat<int32_t>().data(),
                      starts.flat<int32_t>().data(),
                      cells,
                      values.dim_size(1)};
    const auto grad = size == 8    ? TermsGrad<8>
                      : size == 16 ? TermsGrad<16>
                      : size == 32 ? TermsGrad<32>
                      : size == 64 ? TermsGrad<64>
                                   : TermsGrad<0>;
    float* out = gradient->flat<float>().data();
    ParallelByCells(context, in.starts, distinct, 20 + 2 * size,
                    [&](int64_t first, int64_t last) { grad(in, size, first, last, out); });
  }
};

// Rows [N, E] summed over equal ids.
class SumRows : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor &rows = context->input(0), &order = context->input(1), &starts = context->input(2);
    const int64_t distinct = starts.NumElements() - 1;
    OP_REQUIRES(context, rows.dims() == 2 && rows.dim_size(0) == order.NumElements() && distinct >= 0,
                Invalid(rows.shape().DebugString(), " rows, ", order.NumElements(), " cells"));
    const int64_t width = rows.dim_size(1);
    Tensor* sums;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({distinct, width}), &sums));
    const float* from = rows.flat<float>().data();
    const int32_t *cell = order.flat<int32_t>().data(), *start = starts.flat<int32_t>().data();
    float* to = sums->flat<float>().data();
    ParallelByCells(context, start, distinct, 20 + width, [=](int64_t first, int64_t last) {
      for (int64_t u = first; u < last; ++u) {
        float* __restrict sum = to + u * width;
        std::fill_n(sum, width, 0.0f);
        for (int64_t i = start[u]; i < start[u + 1]; ++i) {
          const float* __restrict row = from + cell[i] * width;
          for (int64_t e = 0; e < width; ++e) sum[e] += row[e];
        }
      }
    });
  }
};

// The rules at the top of optimizers.py. `rate` holds Adam's bias correction.
struct Rule {
  enum Kind { kAdam, kAdagrad, kFtrl, kMomentum, kSgd };

  explicit Rule(OpKernelConstruction* context) {
    std::string optimizer;
    OP_REQUIRES_OK(context, context->GetAttr("optimizer", &optimizer));
    kind = optimizer == "adam"       ? kAdam
           : optimizer == "adagrad"  ? kAdagrad
           : optimizer == "ftrl"     ? kFtrl
           : optimizer == "momentum" ? kMomentum
                                     : kSgd;
    slots = kind == kAdam || kind == kFtrl ? 2 : kind == kSgd ? 0 : 1;
    OP_REQUIRES_OK(context, context->GetAttr("l2", &l2));
    OP_REQUIRES_OK(context, context->GetAttr("beta_1", &beta_1));
    OP_REQUIRES_OK(context, context->GetAttr("beta_2", &beta_2));
    OP_REQUIRES_OK(context, context->GetAttr("epsilon", &epsilon));
    OP_REQUIRES_OK(context, context->GetAttr("momentum", &momentum));
    OP_REQUIRES_OK(context, context->GetAttr("ftrl_l1", &ftrl_l1));
    OP_REQUIRES_OK(context, context->GetAttr("ftrl_l2", &ftrl_l2));
  }

  void Apply(float* parameter, float* slot_1, float* slot_2, const float* gradient, int64_t count, float rate) const {
    if (l2 == 0) {
      ApplyTo<false>(parameter, slot_1, slot_2, gradient, count, rate);
    } else {
      ApplyTo<true>(parameter, slot_1, slot_2, gradient, count, rate);
    }
  }

  template <bool kDecay>
  void ApplyTo(float* __restrict parameter, float* __restrict slot_1, float* __restrict slot_2,
               const float* __restrict gradient, int64_t count, float rate) const {
    if (kind == kAdam) {
      for (int64_t i = 0; i < count; ++i) {
        const float g = kDecay ? gradient[i] + l2 * parameter[i] : gradient[i];
        slot_1[i] = beta_1 * slot_1[i] + (1 - beta_1) * g;
        slot_2[i] = beta_2 * slot_2[i] + (1 - beta_2) * g * g;
        parameter[i] -= rate * slot_1[i] / (std::sqrt(slot_2[i]) + epsilon);
      }
    } else if (kind == kAdagrad) {
      for (int64_t i = 0; i < count; ++i) {
        const float g = kDecay ? gradient[i] + l2 * parameter[i] : gradient[i];
        slot_1[i] += g * g;
        parameter[i] -= rate * g / (std::sqrt(slot_1[i]) + epsilon);
      }
    } else if (kind == kFtrl) {
      for (int64_t i = 0; i < count; ++i) {
        const float g = kDecay ? gradient[i] + l2 * parameter[i] : gradient[i];
        const float before = std::sqrt(slot_1[i]);
        slot_1[i] += g * g;
        const float now = std::sqrt(slot_1[i]);
        const float linear = slot_2[i] + g - (now - before) / rate * parameter[i];
        slot_2[i] = linear;
        parameter[i] = (std::min(std::max(linear, -ftrl_l1), ftrl_l1) - linear) / (now / rate + 2 * ftrl_l2);
      }
    } else if (kind == kMomentum) {
      for (int64_t i = 0; i < count; ++i) {
        const float g = kDecay ? gradient[i] + l2 * parameter[i] : gradient[i];
        slot_1[i] = momentum * slot_1[i] - rate * g;
        parameter[i] += slot_1[i];
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        const float g = kDecay ? gradient[i] + l2 * parameter[i] : gradient[i];
        parameter[i] -= rate * g;
      }
    }
  }

  Kind kind;
  int64_t slots;
  float l2, beta_1, beta_2, epsilon, momentum, ftrl_l1, ftrl_l2;
};

// Gives the variable a buffer of its own, if a tensor that was read before shares it. Call it with the lock held.
absl::Status Unshare(OpKernelContext* context, Var* variable) {
  if (variable->tensor()->RefCountIsOne()) return absl::OkStatus();
  Tensor copy;
  TF_RETURN_IF_ERROR(context->allocate_temp(variable->tensor()->dtype(), variable->tensor()->shape(), &copy));
  copy.flat<float>() = variable->tensor()->flat<float>();
  *variable->tensor() = copy;
  return absl::OkStatus();
}

// One step of an optimizer on rows of distinct ids, in place; a table row is the parameters and then their slots.
class UpdateRows : public OpKernel {
 public:
  explicit UpdateRows(OpKernelConstruction* context) : OpKernel(context), rule_(context) {}

  void Compute(OpKernelContext* context) override {
    core::RefCountPtr<Var> variable;
    OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, 0), &variable));
    const Tensor &ids = context->input(1), &gradient = context->input(2);
    const float rate = context->input(3).scalar<float>()();
    mutex_lock lock(*variable->mu());
    // As TensorFlow's own sparse updates: from the first one on, whoever reads the whole table reads a copy.
    if (!variable->copy_on_read_mode.load()) {
      OP_REQUIRES_OK(context, Unshare(context, variable.get()));
      variable->copy_on_read_mode.store(true);
    }
    Tensor* table = variable->tensor();
    OP_REQUIRES(context,
                table->dims() == 2 && gradient.dims() == 2 && gradient.dim_size(0) == ids.NumElements() &&
                    table->dim_size(1) == gradient.dim_size(1) * (1 + rule_.slots),
                Invalid("a table of shape ", table->shape().DebugString(), ", gradients of shape ", gradient.shape().DebugString(),
                        " for ", ids.NumElements(), " ids"));
    const int64_t stride = table->dim_size(1), width = gradient.dim_size(1), count = ids.NumElements();
    float* rows = table->flat<float>().data();
    const float* gradients = gradient.flat<float>().data();
    const int32_t* id = ids.flat<int32_t>().data();
    OP_REQUIRES_OK(context, CheckIds(id, count, table->dim_size(0)));
    Parallel(context, count, 8 * stride, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        if (i + kPrefetchDistance < last) Prefetch(rows + id[i + kPrefetchDistance] * stride, stride);
        float* row = rows + id[i] * stride;
        rule_.Apply(row, row + width, row + 2 * width, gradients + i * width, width, rate);
      }
    });
  }

 private:
  const Rule rule_;
};

// One step of an optimizer on whole variables: `count` of them, then the first slots of all, then the second slots,
// then the gradients, then the rate.
class UpdateDense : public OpKernel {
 public:
  explicit UpdateDense(OpKernelConstruction* context) : OpKernel(context), rule_(context) {
    OP_REQUIRES_OK(context, context->GetAttr("N", &count_));
    int64_t slots;
    OP_REQUIRES_OK(context, context->GetAttr("S", &slots));
    OP_REQUIRES(context, slots == count_ * rule_.slots, Invalid(slots, " slots for ", count_, " variables"));
  }

  void Compute(OpKernelContext* context) override {
    const float rate = context->input(context->num_inputs() - 1).scalar<float>()();
    for (int64_t i = 0; i < count_; ++i) {
      const Tensor& gradient = context->input(count_ * (1 + rule_.slots) + i);
      float* parts[3] = {};
      // Held to the end of the update, and always taken in this order: asynchronous workers update one after the other.
      core::RefCountPtr<Var> variables[3];
      std::optional<mutex_lock> locks[3];
      for (int64_t part = 0; part <= rule_.slots; ++part) {
        OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, part * count_ + i), &variables[part]));
        locks[part].emplace(*variables[part]->mu());
        OP_REQUIRES_OK(context, Unshare(context, variables[part].get()));
        Tensor* tensor = variables[part]->tensor();
        OP_REQUIRES(context, tensor->shape() == gradient.shape(),
                    Invalid("a variable of shape ", tensor->shape().DebugString(), ", its gradient of shape ",
                            gradient.shape().DebugString()));
        parts[part] = tensor->flat<float>().data();
      }
      for (int64_t unused = rule_.slots + 1; unused < 3; ++unused) parts[unused] = parts[0];
      const float* from = gradient.flat<float>().data();
      Parallel(context, gradient.NumElements(), 8, [&](int64_t first, int64_t last) {
        rule_.Apply(parts[0] + first, parts[1] + first, parts[2] + first, from + first, last - first, rate);
      });
    }
  }

 private:
  const Rule rule_;
  int64_t count_;
};

REGISTER_OP("CtrflowDistinctIds")
    .Input("ids: int32")
    .Output("distinct: int32")
    .Output("index: int32")
    .Output("order: int32")
    .Output("starts: int32")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(1, c->input(0));
      c->set_output(2, c->Vector(c->NumElements(c->input(0))));
      c->set_output(3, c->Vector(InferenceContext::kUnknownDim));
      return absl::OkStatus();
    });

REGISTER_OP("CtrflowGatherRows")
    .Input("table: resource")
    .Input("ids: int32")
    .Output("rows: float")
    .Attr("width: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      int64_t width;
      TF_RETURN_IF_ERROR(c->GetAttr("width", &width));
      c->set_output(0, c->Matrix(c->NumElements(c->input(1)), width));
      return absl::OkStatus();
    });

REGISTER_OP("CtrflowEmbeddingTerms")
    .Input("rows: float")
    .Input("index: int32")
    .Input("values: float")
    .Input("order: int32")
    .Input("starts: int32")
    .Output("logits: float")
    .Output("scaled: float")
    .Output("sums: float")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle rows, index;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &rows));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &index));
      shape_inference::DimensionHandle size, cells;
      TF_RETURN_IF_ERROR(c->Subtract(c->Dim(rows, 1), 1, &size));
      TF_RETURN_IF_ERROR(c->Multiply(c->Dim(index, 1), size, &cells));
      c->set_output(0, c->Vector(c->Dim(index, 0)));
      c->set_output(1, c->Matrix(c->Dim(index, 0), cells));
      c->set_output(2, c->Matrix(c->Dim(index, 0), size));
      return absl::OkStatus();
    });

REGISTER_OP("CtrflowEmbeddingTermsGrad")
    .Input("rows: float")
    .Input("values: float")
    .Input("order: int32")
    .Input("starts: int32")
    .Input("sums: float")
    .Input("of_logits: float")
    .Input("of_scaled: float")
    .Output("of_rows: float")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(0));
      return absl::OkStatus();
    });

REGISTER_OP("CtrflowSumRows")
    .Input("rows: float")
    .Input("order: int32")
    .Input("starts: int32")
    .Output("sums: float")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle rows;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &rows));
      c->set_output(0, c->Matrix(InferenceContext::kUnknownDim, c->Dim(rows, 1)));
      return absl::OkStatus();
    });

REGISTER_OP("CtrflowUpdateRows")
    .Input("table: resource")
    .Input("ids: int32")
    .Input("gradient: float")
    .Input("rate: float")
    .Attr("optimizer: {'adam', 'adagrad', 'ftrl', 'momentum', 'sgd'}")
    .Attr("l2: float")
    .Attr("beta_1: float")
    .Attr("beta_2: float")
    .Attr("epsilon: float")
    .Attr("momentum: float")
    .Attr("ftrl_l1: float")
    .Attr("ftrl_l2: float")
    .SetIsStateful()
    .SetShapeFn(shape_inference::NoOutputs);

REGISTER_OP("CtrflowUpdateDense")
    .Input("variables: N * resource")
    .Input("slots: S * resource")
    .Input("gradients: N * float")
    .Input("rate: float")
    .Attr("N: int >= 1")
    .Attr("S: int >= 0")
    .Attr("optimizer: {'adam', 'adagrad', 'ftrl', 'momentum', 'sgd'}")
    .Attr("l2: float")
    .Attr("beta_1: float")
    .Attr("beta_2: float")
    .Attr("epsilon: float")
    .Attr("momentum: float")
    .Attr("ftrl_l1: float")
    .Attr("ftrl_l2: float")
    .SetIsStateful()
    .SetShapeFn(shape_inference::NoOutputs);

REGISTER_KERNEL_BUILDER(Name("CtrflowDistinctIds").Device(DEVICE_CPU), DistinctIds);
REGISTER_KERNEL_BUILDER(Name("CtrflowGatherRows").Device(DEVICE_CPU), GatherRows);
REGISTER_KERNEL_BUILDER(Name("CtrflowEmbeddingTerms").Device(DEVICE_CPU), EmbeddingTerms);
REGISTER_KERNEL_BUILDER(Name("CtrflowEmbeddingTermsGrad").Device(DEVICE_CPU), EmbeddingTermsGrad);
REGISTER_KERNEL_BUILDER(Name("CtrflowSumRows").Device(DEVICE_CPU), SumRows);
REGISTER_KERNEL_BUILDER(Name("CtrflowUpdateRows").Device(DEVICE_CPU), UpdateRows);
REGISTER_KERNEL_BUILDER(Name("CtrflowUpdateDense").Device(DEVICE_CPU), UpdateDense);

}  // namespace
}  // namespace ctrflow
