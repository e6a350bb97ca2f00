// Log-probabilities of a generative sigmoid belief network and their gradient, with products of binary rows by looking
// up sums, for processors with 512-bit vectors.
//
// Four binary inputs of a unit select one of sixteen sums of their weights. Sixteen sums are one register, so for sixteen
// rows of inputs a permutation and an addition replace four multiply-adds of vectors. The gradient of a weight is such a
// product, too: the values of a unit in four rows select one of sixteen sums of those rows' residuals. Latents are bits
// throughout, and logits stay in the cache.
//
// A row is a pair of a sample and an example, and rows are in vectors of sixteen. Lane l of strip s is the pair
// (k, b) = divmod(16 s + l, Q), where Q is a quarter of the batch; vector 4 s + q of a layer holds the examples b + q Q.
// So the four vectors of a strip are the four draws of one cipher (`sample_bernoulli`), whose counters and bits are those
// of the package.
//
// Layers are counted from x, in the order of sampling; the package's h^1 is the last of them. Q(h_1 | x), Q(h_2 | h_1),
// ...; P(h_n), P(h_{n-1} | h_n), ..., P(x | h_1). Observations are binary. The product of x and its weights has one row
// for each example and is left to XLA: its result is an input here.

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using V = __m512;
using I = __m512i;
using Mask = __mmask16;
using Floats = ffi::Buffer<ffi::F32>;
using Words = ffi::Buffer<ffi::U32>;
using Bytes = ffi::Buffer<ffi::U8>;

// COLUMNS, a definition of the compiler's, is the number of columns of a product that are computed at a time: with four
// vectors of rows, six are 24 accumulators.
constexpr int STRIPS = 3;  // The sums of this many strips stay in the first cache while gradients look them up.

int ceiling(int n, int m) { return (n + m - 1) / m; }

V zero() { return _mm512_setzero_ps(); }
V same(float x) { return _mm512_set1_ps(x); }
void add(V& sum, V x) { sum = _mm512_add_ps(sum, x); }

// ---------------------------------------------------------------------------------------------------------- the state

// What the backward pass needs, in one buffer of XLA's.
struct State {
  int K, B, D, Q, strips;
  std::vector<int> widths;      // of h_1, h_2, ...
  std::vector<uint16_t*> bits;  // of each layer: [vector][unit], sixteen rows
  // Residuals of Q(h_i | h_{i-1}), i > 1, and of P(h_{i-1} | h_i), where h_0 is x: [group of columns][strip][column][4].
  std::vector<V*> residuals_of_q, residuals_of_p;
  size_t size = 0;

  State(uint8_t* start, int K, int B, int D, std::vector<int> widths)
      : K(K), B(B), D(D), Q(B / 4), strips(ceiling(K * Q, 16)), widths(widths) {
    auto take = [&](size_t bytes) {
      uint8_t* place = start + size;
      size += bytes;  // always whole vectors
      return place;
    };
    auto residuals = [&](int n) {
      return reinterpret_cast<V*>(take(sizeof(V) * 4 * COLUMNS * strips * ceiling(n, COLUMNS)));
    };
    for (size_t i = 0; i < widths.size(); i++) {
      bits.push_back(reinterpret_cast<uint16_t*>(take(sizeof(uint16_t) * 4 * strips * padded(i))));
      residuals_of_q.push_back(i == 0 ? nullptr : residuals(widths[i]));
      residuals_of_p.push_back(residuals(i == 0 ? D : widths[i - 1]));
    }
  }

  int padded(int layer) const { return ceiling(widths[layer], 16) * 16; }
  int groups(int layer) const { return ceiling(widths[layer], 4); }  // of four inputs
  Mask valid(int strip) const {
    int left = K * Q - 16 * strip;
    return left >= 16 ? 0xFFFF : (1 << left) - 1;
  }
  Mask bits_of(int layer, int vector, int unit) const { return bits[layer][size_t(vector) * padded(layer) + unit]; }
  int row(int strip, int quarter, int lane) const {  // of an array with axes K, B
    int n = 16 * strip + lane;
    return n / Q * B + n % Q + quarter * Q;
  }
};

// Integers in each lane of a strip.
template <typename F>
I lanes(int strip, F value) {
  alignas(64) int32_t numbers[16];
  for (int l = 0; l < 16; l++) numbers[l] = value(16 * strip + l);
  return _mm512_load_si512(numbers);
}

// ------------------------------------------------------------------------------------------------------ units of layers

// exp -x for x >= 0, by the polynomial of `vimco.models.kernels.bernoulli`.
V exp_of_minus(V x) {
  constexpr float coefficients[] = {EXP2_COEFFICIENTS};
  V exponent = _mm512_max_ps(_mm512_mul_ps(x, same(-1.44269504f)), same(-126.f));
  V whole = _mm512_roundscale_ps(exponent, _MM_FROUND_TO_NEAREST_INT), part = _mm512_sub_ps(exponent, whole);
  V power = same(coefficients[5]);
  for (int i = 4; i >= 0; i--) power = _mm512_fmadd_ps(power, part, same(coefficients[i]));
  return _mm512_scalef_ps(power, whole);
}

V reciprocal(V x) {  // one Newton step from fourteen bits
  V y = _mm512_rcp14_ps(x);
  return _mm512_mul_ps(y, _mm512_fnmadd_ps(x, y, same(2)));
}

template <int R>
void cipher_round(I& high, I& low) {
  high = _mm512_add_epi32(high, low);
  low = _mm512_xor_si512(high, _mm512_rol_epi32(low, R));
}

// The four uniform numbers of `_four_uniforms` at a counter in each lane.
void four_uniforms(const uint32_t* key, I high, I low, V* uniforms) {
  uint32_t keys[] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA};
  auto add_keys = [&](int i, int n) {
    high = _mm512_add_epi32(high, _mm512_set1_epi32(keys[i % 3]));
    low = _mm512_add_epi32(low, _mm512_set1_epi32(keys[(i + 1) % 3] + n));
  };
  add_keys(0, 0);
  for (int group = 0; group < 5; group++) {
    if (group % 2 == 0) {
      cipher_round<13>(high, low), cipher_round<15>(high, low);
      cipher_round<26>(high, low), cipher_round<6>(high, low);
    } else {
      cipher_round<17>(high, low), cipher_round<29>(high, low);
      cipher_round<16>(high, low), cipher_round<24>(high, low);
    }
    add_keys(group + 1, group + 1);
  }
  I last = _mm512_set1_epi32(31);
  I common = _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(high, last), 5), _mm512_and_si512(low, last));
  common = _mm512_or_si512(common, _mm512_set1_epi32(0x3F800000));
  I words[] = {_mm512_srli_epi32(high, 9), _mm512_slli_epi32(high, 4), _mm512_srli_epi32(low, 9),
               _mm512_slli_epi32(low, 4)};
  for (int i = 0; i < 4; i++) {
    I number = _mm512_or_si512(_mm512_and_si512(words[i], _mm512_set1_epi32(0x7FFC00)), common);
    uniforms[i] = _mm512_sub_ps(_mm512_castsi512_ps(number), same(1 - 0x1p-24f));
  }
}

// The logits of sixteen rows of a unit.
struct Unit {
  V logit, e;
  Mask positive;

  explicit Unit(V a) : Unit(a, exp_of_minus(_mm512_abs_ps(a))) {}
  Unit(V a, V e) : logit(a), e(e), positive(_mm512_cmp_ps_mask(a, zero(), _CMP_GT_OQ)) {}

  Mask drawn(V uniform) const {  // the less likely value where u (1 + e) < e
    return _mm512_cmp_ps_mask(_mm512_fmadd_ps(uniform, e, uniform), e, _CMP_LT_OQ) ^ positive;
  }
  V residual(Mask value) const {
    V inverse = reciprocal(_mm512_add_ps(same(1), e));
    V mean = _mm512_mask_mov_ps(_mm512_mul_ps(e, inverse), positive, inverse);
    return _mm512_sub_ps(_mm512_maskz_mov_ps(value, same(1)), mean);
  }
};

// Log-probabilities of sixteen rows: v a - max(a, 0) summed with compensation, and one logarithm for all factors 1 + e.
struct Sum {
  V linear = zero(), error = zero(), factor = same(1), exponent = zero();

  void add_linear(V x) {
    V y = _mm512_sub_ps(x, error), sum = _mm512_add_ps(linear, y);
    error = _mm512_sub_ps(_mm512_sub_ps(sum, linear), y);
    linear = sum;
  }
  void add_factor(V x) {
    x = _mm512_mul_ps(x, factor);
    add(exponent, _mm512_getexp_ps(x));
    factor = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src);
  }
  void write(const State& state, int strip, int quarter, float* result) const {
    alignas(64) float l[16], f[16], e[16];
    _mm512_store_ps(l, linear), _mm512_store_ps(f, factor), _mm512_store_ps(e, exponent);
    for (int i = 0; i < 16; i++)
      if (state.valid(strip) >> i & 1) result[state.row(strip, quarter, i)] = l[i] - std::log(f[i]) - M_LN2 * e[i];
  }
};

// The terms of a few units, before they are added to a `Sum`.
struct Terms {
  V linear = zero(), factor = same(1);

  void take(const Unit& unit, Mask value) {
    linear = _mm512_sub_ps(_mm512_mask_add_ps(linear, value, linear, unit.logit), _mm512_max_ps(unit.logit, zero()));
    factor = _mm512_fmadd_ps(unit.e, factor, factor);
  }
  void add_to(Sum& sum) const { sum.add_linear(linear), sum.add_factor(factor); }
};

// --------------------------------------------------------------------------------------------------------- the lookups

// The sums of the subsets of up to four numbers, plus a base: bit i of a lane's number says whether number i is in.
V subsets(const float* numbers, int stride, int count = 4, V base = zero()) {
  constexpr Mask has[] = {0xAAAA, 0xCCCC, 0xF0F0, 0xFF00};
  for (int i = 0; i < count; i++) base = _mm512_mask_add_ps(base, has[i], base, same(numbers[i * stride]));
  return base;
}

struct Product {  // of a binary layer with m units, and weights [m][n]
  const float *weight, *bias;
  int m, n;

  // The sums of weights for a group of columns: [four inputs][column].
  void fill(V* table, int column) const {
    int width = std::min(COLUMNS, n - column);
    for (int g = 0; g < ceiling(m, 4); g++)
      for (int c = 0; c < COLUMNS; c++) {
        const float* numbers = weight + size_t(4) * g * n + column + c;
        V base = g == 0 && c < width ? same(bias[column + c]) : zero();
        *table++ = c < width ? subsets(numbers, n, std::min(4, m - 4 * g), base) : base;
      }
  }
};

// Logits of a group of columns and of the four vectors of a strip, whose inputs are four bits in each lane.
inline void look_up(V logits[COLUMNS][4], const V* table, const I* inputs, int groups) {
  V sums[COLUMNS][4];
#pragma GCC unroll 6
  for (int c = 0; c < COLUMNS; c++)
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) sums[c][i] = zero();
  for (int g = 0; g < groups; g++, inputs += 4, table += COLUMNS) {
    I input[] = {inputs[0], inputs[1], inputs[2], inputs[3]};
#pragma GCC unroll 6
    for (int c = 0; c < COLUMNS; c++) {
      V entries = table[c];
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) add(sums[c][i], _mm512_permutexvar_ps(input[i], entries));
    }
  }
#pragma GCC unroll 6
  for (int c = 0; c < COLUMNS; c++)
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) logits[c][i] = sums[c][i];
}

// Add what the rows of several vectors give to the gradient of 16 R units and a group of columns. A lane belongs to a
// unit; its bits are the unit's values in the sixteen rows of a vector, and the lowest four select a sum of four rows.
template <int R>
inline void look_up_rows(V (*gradient)[COLUMNS], const V* table, const uint16_t* bits, int padded, int vectors) {
  V sums[COLUMNS][R];
#pragma GCC unroll 6
  for (int c = 0; c < COLUMNS; c++)
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) sums[c][r] = gradient[r][c];
  for (int v = 0; v < vectors; v++, bits += padded) {
    I rows[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) rows[r] = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(bits + 16 * r)));
#pragma GCC unroll 1
    for (int four = 0; four < 4; four++, table += COLUMNS) {  // unrolled, it would need more registers than there are
#pragma GCC unroll 6
      for (int c = 0; c < COLUMNS; c++)
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) add(sums[c][r], _mm512_permutexvar_ps(rows[r], table[c]));
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) rows[r] = _mm512_srli_epi32(rows[r], 4);
    }
  }
#pragma GCC unroll 6
  for (int c = 0; c < COLUMNS; c++)
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) gradient[r][c] = sums[c][r];
}

// ---------------------------------------------------------------------------------------------------- the forward pass

// The units of a layer in groups of four, as `look_up` reads them: [strip][four units][4].
std::vector<I> inputs_of(const State& state, int layer) {
  std::vector<I> inputs;
  inputs.reserve(size_t(4) * state.strips * state.groups(layer));
  for (int s = 0; s < state.strips; s++)
    for (int g = 0; g < state.groups(layer); g++)
      for (int q = 0; q < 4; q++) {
        const uint16_t* bits = state.bits[layer] + size_t(4 * s + q) * state.padded(layer) + 4 * g;
        I input = _mm512_maskz_set1_epi32(bits[0], 1);  // units beyond the last have no bits
        for (int i = 1; i < 4; i++) input = _mm512_mask_or_epi32(input, bits[i], input, _mm512_set1_epi32(1 << i));
        inputs.push_back(input);
      }
  return inputs;
}

// For every strip and unit of a layer call `of_unit(strip, unit, logits, terms, residuals)`, which reads the logits given
// the parent and writes the residuals of four vectors. The terms are added to `sums`.
template <typename F>
void through(const State& state, const std::vector<I>& inputs, const Product& product, V* residuals, Sum* sums,
             F of_unit) {
  int groups = ceiling(product.m, 4);
  std::vector<V> table(size_t(groups) * COLUMNS);
  V logits[COLUMNS][4];
  for (int column = 0; column < product.n; column += COLUMNS) {
    product.fill(table.data(), column);
    for (int s = 0; s < state.strips; s++, residuals += 4 * COLUMNS) {
      look_up(logits, table.data(), &inputs[size_t(4) * s * groups], groups);
      Terms terms[4];
      for (int c = 0; c < std::min(COLUMNS, product.n - column); c++)
        of_unit(s, column + c, logits[c], terms, residuals + 4 * c);
      for (int q = 0; q < 4; q++) terms[q].add_to(sums[4 * s + q]);
    }
  }
}

ffi::Error forward(Floats of_data, Words keys, Floats x, ffi::RemainingArgs rest, ffi::Result<Floats> log_joint,
                   ffi::Result<Floats> log_proposal, ffi::Result<Bytes> saved) {
  // The rest: weight and bias of Q(h_i | h_{i-1}), i > 1; the bias of P(h_n); weight and bias of P(h_{i-1} | h_i), i >= 1.
  auto array = [&](int i) { return rest.get<Floats>(i)->typed_data(); };
  int depth = (rest.size() + 1) / 4;
  std::vector<int> widths{int(of_data.dimensions()[1])};
  for (int i = 1; i < depth; i++) widths.push_back(rest.get<Floats>(2 * (i - 1))->dimensions()[1]);
  const float *bias_of_prior = array(2 * (depth - 1)), *pixels = x.typed_data();
  State state(saved->typed_data(), log_joint->dimensions()[0], x.dimensions()[0], x.dimensions()[1], widths);
  if (state.size != saved->size_bytes()) return ffi::Error::InvalidArgument("The state has another size.");
  if (uintptr_t(saved->typed_data()) % 64) return ffi::Error::InvalidArgument("The state is not aligned to vectors.");
  int Q = state.Q, top = depth - 1;
  std::vector<Sum> log_p(4 * state.strips), log_q(4 * state.strips);
  std::vector<I> sample, example;  // k and b of each lane
  for (int s = 0; s < state.strips; s++) {
    sample.push_back(lanes(s, [&](int n) { return n / Q; }));
    example.push_back(lanes(s, [&](int n) { return n % Q; }));
  }
  auto uniforms = [&](int layer, int s, int unit, V* four) {
    I low = _mm512_add_epi32(_mm512_mullo_epi32(example[s], _mm512_set1_epi32(widths[layer])), _mm512_set1_epi32(unit));
    four_uniforms(keys.typed_data() + 2 * layer, sample[s], low, four);
  };
  auto store = [&](int layer, int vector, int unit, Mask value) {
    state.bits[layer][size_t(vector) * state.padded(layer) + unit] = value;
    if (layer == top) log_p[vector].add_linear(_mm512_maskz_mov_ps(value, same(bias_of_prior[unit])));
  };
  for (int i = 0; i < depth; i++) std::memset(state.bits[i], 0, sizeof(uint16_t) * 4 * state.strips * state.padded(i));

  // h_1: its logits are those of the data, which samples share.
  for (int unit = 0; unit < widths[0]; unit++) {
    V logits[4], e[4];
    for (int q = 0; q < 4; q++) {
      alignas(64) float of_examples[16] = {};
      for (int b = 0; b < Q; b++) of_examples[b] = of_data.typed_data()[(b + q * Q) * widths[0] + unit];
      logits[q] = _mm512_load_ps(of_examples), e[q] = exp_of_minus(_mm512_abs_ps(logits[q]));
    }
    for (int s = 0; s < state.strips; s++) {
      V four[4];
      uniforms(0, s, unit, four);
      for (int q = 0; q < 4; q++) {
        Unit of(_mm512_permutexvar_ps(example[s], logits[q]), _mm512_permutexvar_ps(example[s], e[q]));
        Mask value = of.drawn(four[q]) & state.valid(s);
        Terms terms;
        terms.take(of, value), terms.add_to(log_q[4 * s + q]);
        store(0, 4 * s + q, unit, value);
      }
    }
  }
  std::vector<std::vector<I>> inputs{inputs_of(state, 0)};
  for (int i = 1; i < depth; i++) {
    Product product{array(2 * (i - 1)), array(2 * (i - 1) + 1), widths[i - 1], widths[i]};
    auto draw = [&](int s, int unit, const V* logits, Terms* terms, V* residuals) {
      V four[4];
      uniforms(i, s, unit, four);
      for (int q = 0; q < 4; q++) {
        Unit of(logits[q]);
        Mask value = of.drawn(four[q]) & state.valid(s);
        store(i, 4 * s + q, unit, value), terms[q].take(of, value);
        residuals[q] = of.residual(value);
      }
    };
    through(state, inputs[i - 1], product, state.residuals_of_q[i], log_q.data(), draw);
    inputs.push_back(inputs_of(state, i));
  }

  // A pixel of a quarter's examples, repeated, so that sixteen lanes from any position are sixteen bits of it.
  std::vector<uint32_t> repeated(size_t(4) * state.D);
  for (int q = 0; q < 4; q++)
    for (int d = 0; d < state.D; d++) {
      uint32_t bits = 0;
      for (int n = 0; n < 32; n++) bits |= uint32_t(pixels[(n % Q + q * Q) * state.D + d] > 0.5f) << n;
      repeated[4 * d + q] = bits;
    }
  for (int i = 0; i < depth; i++) {
    int at = 2 * depth - 1 + 2 * i, children = i == 0 ? state.D : widths[i - 1];
    Product product{array(at), array(at + 1), widths[i], children};
    auto given = [&](int s, int unit, const V* logits, Terms* terms, V* residuals) {
      for (int q = 0; q < 4; q++) {
        Mask value = i == 0 ? repeated[4 * unit + q] >> (16 * s % Q) : state.bits_of(i - 1, 4 * s + q, unit);
        Unit of(logits[q]);
        terms[q].take(of, value);
        residuals[q] = of.residual(value);
      }
    };
    through(state, inputs[i], product, state.residuals_of_p[i], log_p.data(), given);
  }
  double normaliser = 0;  // of P(h_n)
  for (int unit = 0; unit < widths[top]; unit++) {
    double a = bias_of_prior[unit];
    normaliser += std::max(a, 0.0) + std::log1p(std::exp(-std::abs(a)));
  }
  for (int s = 0; s < state.strips; s++)
    for (int q = 0; q < 4; q++) {
      log_p[4 * s + q].add_linear(same(-normaliser));
      log_p[4 * s + q].write(state, s, q, log_joint->typed_data());
      log_q[4 * s + q].write(state, s, q, log_proposal->typed_data());
    }
  return ffi::Error::Success();
}

// --------------------------------------------------------------------------------------------------- the backward pass

// The gradient of a product's weight and bias, from its residuals and the coefficients of their rows.
void backward_of(const State& state, int parent, int n, const V* residuals, const V* coefficients, float* of_weight,
                 float* of_bias) {
  int m = state.widths[parent], padded = state.padded(parent), units = padded / 16;
  std::vector<V> table(size_t(16) * STRIPS * COLUMNS);
  std::vector<V> memory(size_t(units) * COLUMNS);
  auto gradient = reinterpret_cast<V(*)[COLUMNS]>(memory.data());
  for (int column = 0; column < n; column += COLUMNS) {
    int width = std::min(COLUMNS, n - column);
    V bias[COLUMNS];
    std::fill(bias, bias + COLUMNS, zero());
    std::fill(memory.begin(), memory.end(), zero());
    for (int first = 0; first < state.strips; first += STRIPS) {
      int vectors = 4 * std::min(STRIPS, state.strips - first);
      for (int v = 0; v < vectors; v++)
        for (int c = 0; c < COLUMNS; c++) {
          alignas(64) float rows[16];
          V x = c < width ? residuals[(v / 4 * COLUMNS + c) * 4 + v % 4] * coefficients[4 * first + v] : zero();
          add(bias[c], x);
          _mm512_store_ps(rows, x);
#pragma GCC unroll 4
          for (int j = 0; j < 4; j++) table[(4 * v + j) * COLUMNS + c] = subsets(rows + 4 * j, 1);
        }
      residuals += vectors * COLUMNS;
      if (first + STRIPS < state.strips)
        for (int i = 0; i < vectors * COLUMNS; i++) _mm_prefetch((const char*)(residuals + i), _MM_HINT_T0);
      const uint16_t* bits = state.bits[parent] + size_t(4) * first * padded;
      int u = 0;
      for (; u + 4 <= units; u += 4) look_up_rows<4>(gradient + u, table.data(), bits + 16 * u, padded, vectors);
      for (; u < units; u++) look_up_rows<1>(gradient + u, table.data(), bits + 16 * u, padded, vectors);
    }
    for (int i = 0; i < m; i++)
      for (int c = 0; c < width; c++)
        of_weight[size_t(i) * n + column + c] = reinterpret_cast<const float*>(&gradient[i / 16][c])[i % 16];
    for (int c = 0; c < width; c++) of_bias[column + c] = _mm512_reduce_add_ps(bias[c]);
  }
}

float mean_of(float a) { return a > 0 ? 1 / (1 + std::exp(-a)) : std::exp(a) / (1 + std::exp(a)); }

// The gradients of `of_data` and of the rest, from those of log P and log Q.
ffi::Error backward(Floats of_joint, Floats of_proposal, Floats of_data, Floats bias_of_prior, Bytes saved,
                    ffi::RemainingRets gradients) {
  auto array = [&](int i) { return (*gradients.get<Floats>(i))->typed_data(); };
  int depth = gradients.size() / 4, K = of_joint.dimensions()[0], B = of_joint.dimensions()[1];
  std::vector<int> widths{int(of_data.dimensions()[1])};
  for (int i = 1; i < depth; i++) widths.push_back((*gradients.get<Floats>(2 * i - 1))->dimensions()[1]);
  int D = (*gradients.get<Floats>(2 * depth))->dimensions()[1], top = depth - 1;
  State state(saved.typed_data(), K, B, D, widths);
  auto in_vectors = [&](const float* values) {
    std::vector<V> vectors;
    for (int s = 0; s < state.strips; s++)
      for (int q = 0; q < 4; q++) {
        alignas(64) float rows[16] = {};
        for (int l = 0; l < 16; l++)
          if (state.valid(s) >> l & 1) rows[l] = values[state.row(s, q, l)];
        vectors.push_back(_mm512_load_ps(rows));
      }
    return vectors;
  };
  std::vector<V> of_p = in_vectors(of_joint.typed_data()), of_q = in_vectors(of_proposal.typed_data());
  for (int i = 0; i < depth; i++) {
    if (i > 0) backward_of(state, i - 1, widths[i], state.residuals_of_q[i], of_q.data(), array(2 * i - 1), array(2 * i));
    int at = 2 * (depth + i), children = i == 0 ? D : widths[i - 1];
    backward_of(state, i, children, state.residuals_of_p[i], of_p.data(), array(at), array(at + 1));
  }

  // Layers whose logits samples share: residuals are summed over samples first.
  float total = 0;
  std::vector<float> totals(B);
  for (int r = 0; r < K * B; r++) total += of_joint.typed_data()[r], totals[r % B] += of_proposal.typed_data()[r];
  for (int unit = 0; unit < widths[top]; unit++) {
    V sum = zero();
    for (int v = 0; v < 4 * state.strips; v++) sum = _mm512_mask_add_ps(sum, state.bits_of(top, v, unit), sum, of_p[v]);
    array(2 * depth - 1)[unit] = _mm512_reduce_add_ps(sum) - total * mean_of(bias_of_prior.typed_data()[unit]);
  }
  for (int unit = 0; unit < widths[0]; unit++)
    for (int q = 0; q < 4; q++) {
      V by_position[16];  // strips whose first lane is the same example
      std::fill(by_position, by_position + 16, zero());
      for (int s = 0; s < state.strips; s++) {
        V& sum = by_position[16 * s % state.Q];
        sum = _mm512_mask_add_ps(sum, state.bits_of(0, 4 * s + q, unit), sum, of_q[4 * s + q]);
      }
      float of_example[16] = {};
      for (int p = 0; p < state.Q; p++)
        for (int l = 0; l < 16; l++) of_example[(p + l) % state.Q] += reinterpret_cast<const float*>(by_position + p)[l];
      for (int b = 0; b < state.Q; b++) {
        int row = b + q * state.Q, at = row * widths[0] + unit;
        array(0)[at] = of_example[b] - totals[row] * mean_of(of_data.typed_data()[at]);
      }
    }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(Forward, forward,
                              ffi::Ffi::Bind()
                                  .Arg<Floats>()
                                  .Arg<Words>()
                                  .Arg<Floats>()
                                  .RemainingArgs()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Bytes>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(Backward, backward,
                              ffi::Ffi::Bind()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Bytes>()
                                  .RemainingRets());
