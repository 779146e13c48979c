// Softmax attention of one head after another, forward and backward, in float32 whatever the inputs.
//
// Causal queries leave out later keys, in steps of ROWS queries. Scratch memory is padded to whole vectors and tiles;
// what lies in the padding reaches no result.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>

#define INLINE inline __attribute__((always_inline))

namespace {

using torch::stable::Tensor;
using Optional = std::optional<Tensor>;

#ifdef __AVX512F__
constexpr int64_t LANES = 16;  // Numbers in a vector, as wide as the processor's registers.
#else
constexpr int64_t LANES = 8;
#endif
constexpr int64_t ROWS = 8, BLOCK = 64;  // Rows of a tile of products, and queries of the backward pass at once.
typedef float Vector __attribute__((vector_size(4 * LANES), may_alias));
typedef int32_t Integers __attribute__((vector_size(4 * LANES), may_alias));
typedef int16_t Shorts __attribute__((vector_size(2 * LANES), may_alias));

INLINE Integers lane() {
  Integers x{};
  for (int64_t l = 0; l < LANES; l++) x[l] = l;
  return x;
}
INLINE int64_t up(int64_t n) { return (n + LANES - 1) / LANES * LANES; }
INLINE Vector& at(float* x) { return *reinterpret_cast<Vector*>(x); }

template <class Numbers> INLINE void copy(void* to, const void* from, int64_t n) {
  constexpr int64_t whole = sizeof(Numbers);  // Copying a size that is known takes one instruction.
  n < LANES ? memcpy(to, from, n * whole / LANES) : memcpy(to, from, whole);
}

// One matrix of a tensor (b, h, rows, columns) of float32, bfloat16 or int16, whose rows are contiguous.
struct Matrix {
  char* data = nullptr;
  int64_t size = 0, heads = 1, rows = 0, columns = 0, of_example = 0, of_head = 0, of_row = 0;

  Matrix() = default;
  Matrix(const Tensor& x)
      : data(static_cast<char*>(x.data_ptr())), size(x.element_size()), heads(x.size(1)), rows(x.size(2)),
        columns(x.size(3)), of_example(x.stride(0) * size), of_head(x.stride(1) * size), of_row(x.stride(2) * size) {}
  Matrix(const Optional& x) { if (x) *this = Matrix(*x); }

  INLINE Matrix of(int64_t head) const {
    Matrix one = *this;
    one.data += head / heads * of_example + head % heads * of_head;
    return one;
  }

  // LANES numbers of row i from column j on, and zeros beyond the last column.
  template <class Numbers> INLINE Numbers bits(int64_t i, int64_t j) const {
    Numbers x{};
    copy<Numbers>(&x, data + i * of_row + j * size, columns - j);
    return x;
  }
  INLINE Vector get(int64_t i, int64_t j) const {
    if (size == 4) return bits<Vector>(i, j);
    return (Vector)(__builtin_convertvector(bits<Shorts>(i, j), Integers) << 16);
  }
  INLINE void set(int64_t i, int64_t j, Vector x) const {
    char* to = data + i * of_row + j * size;
    if (size == 4) return copy<Vector>(to, &x, columns - j);
    const Integers wide = (Integers)x, nearest = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;  // Ties to even.
    const Shorts half = __builtin_convertvector(x == x ? nearest : Integers{} + 0x7fc0, Shorts);
    copy<Shorts>(to, &half, columns - j);
  }

  INLINE void load(int64_t first, int64_t rows, float factor, float* out, int64_t width) const {
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j += LANES) at(out + i * width + j) = get(first + i, j) * factor;
  }
  INLINE void load_transposed(int64_t rows, float* out, int64_t width) const {
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j += LANES) {
        const Vector x = get(i, j);
        for (int64_t l = 0; l < std::min(LANES, columns - j); l++) out[(j + l) * width + i] = x[l];
      }
  }
  INLINE void store(int64_t first, int64_t rows, float factor, float* from, int64_t width) const {
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j += LANES) set(first + i, j, at(from + i * width + j) * factor);
  }
};

// out (rows, columns) = a b, or out + a b, with a[i, k] at a[i * of_row + k * of_column] and k from begin to end.
INLINE void product(int64_t rows, int64_t columns, int64_t begin, int64_t end, const float* a, int64_t of_row,
                    int64_t of_column, float* b, int64_t b_width, float* out, int64_t width, bool add) {
  for (int64_t i = 0; i < rows; i += ROWS)
    for (int64_t j = 0; j < columns; j += LANES) {
      Vector sums[ROWS];
      for (int64_t r = 0; r < ROWS; r++) sums[r] = add ? at(out + (i + r) * width + j) : Vector{};
      for (int64_t k = begin; k < end; k++) {
        const Vector row = at(b + k * b_width + j);
#pragma GCC unroll 8
        for (int64_t r = 0; r < ROWS; r++) sums[r] += a[(i + r) * of_row + k * of_column] * row;
      }
      for (int64_t r = 0; r < ROWS; r++) at(out + (i + r) * width + j) = sums[r];
    }
}

// exp(x) = 2^n exp(r) of x <= 0 with |r| <= log(2) / 2, by the polynomial of Cephes' expf.
INLINE Vector exponential(Vector x) {
  const Vector shifted = x * 1.44269504f + 12582912.f, n = shifted - 12582912.f;  // 1.5 * 2^23 rounds to integers.
  const Vector r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Vector y = (1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f;
  y = (((y * r + 4.1665795894e-2f) * r + 1.6666665459e-1f) * r + 5.0000001201e-1f) * r * r + r + 1;
  return x < -87.f ? Vector{} : y * (Vector)(((Integers)shifted + 127) << 23);
}

// The sum or maximum of all lanes, by halves.
template <class Operation> INLINE float fold(Vector x, Operation of) {
#pragma GCC unroll 4
  for (int distance = LANES / 2; distance; distance /= 2) x = of(x, __builtin_shuffle(x, lane() ^ distance));
  return x[0];
}
struct Sum { INLINE Vector operator()(Vector x, Vector y) const { return x + y; } };
struct Larger { INLINE Vector operator()(Vector x, Vector y) const { return x > y ? x : y; } };

// A call for all heads: inputs and outputs of either pass, and sizes, those of scratch memory with padding.
struct Call {
  const Matrix q, k, v, bias = {}, words = {}, pattern, out = {}, grad = {}, dq = {}, dk = {}, dv = {}, dbias = {};
  const bool causal;
  const int32_t last_dropped = 0;
  const float scale, kept;
  const int64_t n_q = q.rows, n_k = k.rows, d = q.columns, e = v.columns;
  const int64_t keys = up(n_k), wide_d = up(d), wide_e = up(e);

  INLINE int64_t seen(int64_t i) const { return causal ? std::min(n_k, i + 1 + n_k - n_q) : n_k; }

  template <class Pass> void run(int64_t heads, Pass pass) const {
    torch::stable::parallel_for(0, heads, 1, [&](int64_t begin, int64_t end) {
      const int64_t size = 2 * (keys + BLOCK) * (wide_d + wide_e + BLOCK);
      float* memory = new (std::align_val_t(sizeof(Vector))) float[size]();
      for (int64_t head = begin; head < end; head++) pass(*this, head, memory);
      ::operator delete[](memory, std::align_val_t(sizeof(Vector)));
    });
  }
};

void forward(const Call& c, int64_t head, float* k) {
  const Matrix bias = c.bias.of(head), words = c.words.of(head), pattern = c.pattern.of(head), out = c.out.of(head);
  float *v = k + c.wide_d * c.keys, *q = v + c.keys * c.wide_e;
  float *x = q + ROWS * c.wide_d, *y = x + ROWS * c.keys;
  c.k.of(head).load_transposed(c.n_k, k, c.keys);
  c.v.of(head).load(0, c.n_k, 1, v, c.wide_e);
  for (int64_t first = 0; first < c.n_q; first += ROWS) {
    const int64_t rows = std::min(ROWS, c.n_q - first), end = c.seen(first + rows - 1);
    c.q.of(head).load(first, rows, c.scale, q, c.wide_d);
    product(ROWS, end, 0, c.d, q, c.wide_d, 1, k, c.keys, x, c.keys, false);
    for (int64_t i = 0; i < rows && c.n_k; i++) {
      float* row = x + i * c.keys;
      const int64_t n = c.seen(first + i), last = up(n) - LANES;
      Vector most = Vector{} - INFINITY, total{};
      for (int64_t j = 0; c.bias.data && j < n; j += LANES) at(row + j) += bias.get(first + i, j);
      at(row + last) = lane() < int(n - last) ? at(row + last) : Vector{} - INFINITY;
      for (int64_t j = 0; j < n; j += LANES) most = Larger()(at(row + j), most);
      const float top = fold(most, Larger());
      for (int64_t j = 0; j < n; j += LANES) total += at(row + j) = exponential(at(row + j) - top);
      const float factor = 1 / fold(total, Sum());
      for (int64_t j = 0; j < n; j += LANES) {
        Vector p = at(row + j) *= factor;
        if (c.words.data) {  // As in `explicit`, what is dropped has a negative sign in the pattern.
          const Integers kept = __builtin_convertvector(words.bits<Shorts>(first + i, j), Integers) > c.last_dropped;
          at(row + j) = kept ? p * c.kept : Vector{};
          p = kept ? p : -p;
        }
        if (c.pattern.data) pattern.set(first + i, j, p);
      }
      std::fill(row + up(n), row + std::max(up(n), end), 0.f);
    }
    product(ROWS, c.e, 0, end, x, c.keys, 1, v, c.wide_e, y, c.wide_e, false);
    out.store(first, rows, 1, y, c.wide_e);
  }
}

void backward(const Call& c, int64_t head, float* k) {
  const Matrix pattern = c.pattern.of(head);
  float *v = k + c.keys * c.wide_d, *dk = v + c.wide_e * c.keys, *dv = dk + c.keys * c.wide_d;
  float *q = dv + c.keys * c.wide_e, *grad = q + BLOCK * c.wide_d, *dq = grad + BLOCK * c.wide_e;
  float *weights = dq + ROWS * c.wide_d, *dx = weights + BLOCK * c.keys;
  c.k.of(head).load(0, c.n_k, 1, k, c.wide_d);
  c.v.of(head).load_transposed(c.n_k, v, c.keys);
  std::fill(dk, q, 0.f);
  for (int64_t first = 0; first < c.n_q; first += BLOCK) {
    const int64_t rows = std::min(BLOCK, c.n_q - first), last = up(c.seen(first + rows - 1));
    c.q.of(head).load(first, rows, c.scale, q, c.wide_d);
    c.grad.of(head).load(first, rows, 1, grad, c.wide_e);
    for (int64_t top = 0; top < rows; top += ROWS) {
      const int64_t bottom = std::min(top + ROWS, rows), end = c.seen(first + bottom - 1);
      product(ROWS, end, 0, c.e, grad + top * c.wide_e, c.wide_e, 1, v, c.keys, dx + top * c.keys, c.keys, false);
      for (int64_t i = top; i < bottom; i++) {
        float *weight = weights + i * c.keys, *row = dx + i * c.keys;
        const int64_t n = up(c.seen(first + i));
        Vector total{};
        for (int64_t j = 0; j < n; j += LANES) {
          const Vector p = pattern.get(first + i, j);
          at(weight + j) = p < 0 ? Vector{} : p * c.kept;
          total += at(row + j) *= at(weight + j);
        }
        const float sum = fold(total, Sum());
        for (int64_t j = 0; j < n; j += LANES) {
          const Vector p = pattern.get(first + i, j);
          at(row + j) -= (p < 0 ? -p : p) * sum;
        }
        std::fill(weight + n, weight + last, 0.f);
        std::fill(row + n, row + (c.dbias.data ? c.keys : last), 0.f);
      }
      product(ROWS, c.d, 0, end, dx + top * c.keys, c.keys, 1, k, c.wide_d, dq, c.wide_d, false);
      c.dq.of(head).store(first + top, bottom - top, c.scale, dq, c.wide_d);
    }
    if (c.dbias.data) c.dbias.of(head).store(first, rows, 1, dx, c.keys);
    for (int64_t j = 0; j < last; j += ROWS) {
      const int64_t begin = c.causal ? std::max<int64_t>(0, j - (c.n_k - c.n_q) - first) : 0;
      product(ROWS, c.e, begin, rows, weights + j, 1, c.keys, grad, c.wide_e, dv + j * c.wide_e, c.wide_e, true);
      product(ROWS, c.d, begin, rows, dx + j, 1, c.keys, q, c.wide_d, dk + j * c.wide_d, c.wide_d, true);
    }
  }
  c.dk.of(head).store(0, c.n_k, 1, dk, c.wide_d);
  c.dv.of(head).store(0, c.n_k, 1, dv, c.wide_e);
}

void attend(const Tensor q, const Tensor k, const Tensor v, const Optional bias, const Optional words, bool causal,
            int64_t last_dropped, double scale, double kept, const Optional pattern, const Tensor out) {
  const Call call{.q = q, .k = k, .v = v, .bias = bias, .words = words, .pattern = pattern, .out = out,
                  .causal = causal, .last_dropped = int32_t(last_dropped), .scale = float(scale), .kept = float(kept)};
  call.run(q.size(0) * q.size(1), forward);
}

void attend_backward(const Tensor q, const Tensor k, const Tensor v, const Tensor pattern, const Tensor grad,
                     bool causal, double scale, double kept, const Tensor dq, const Tensor dk, const Tensor dv,
                     const Optional dbias) {
  const Call call{.q = q, .k = k, .v = v, .pattern = pattern, .grad = grad, .dq = dq, .dk = dk, .dv = dv,
                  .dbias = dbias, .causal = causal, .scale = float(scale), .kept = float(kept)};
  call.run(q.size(0) * q.size(1), backward);
}

}  // namespace

STABLE_TORCH_LIBRARY(spectrope_kernels, library) {
  library.def("attend(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? words, bool causal, int last_dropped, "
              "float scale, float kept, Tensor(a!)? pattern, Tensor(b!) out) -> ()");
  library.def("attend_backward(Tensor q, Tensor k, Tensor v, Tensor pattern, Tensor grad, bool causal, float scale, "
              "float kept, Tensor(a!) dq, Tensor(b!) dk, Tensor(c!) dv, Tensor(d!)? dbias) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(spectrope_kernels, CPU, library) {
  library.impl("attend", TORCH_BOX(&attend));
  library.impl("attend_backward", TORCH_BOX(&attend_backward));
}
