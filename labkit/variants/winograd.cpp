// The kernels of the speed-up "winograd", for pictures (N, H, W, C): the channels of a pixel lie side by side.
//
// Winograd's convolution F(4x4, 3x3) computes a tile Y of 4 x 4 results from 6 x 6 numbers d and a 3x3 filter g:
//
//     Y = A^T [ (G g G^T) * (B^T d B) ] A        Lavin and Gray 2016, section 4.1, where * multiplies number by number
//
// in 36 multiplications, and a direct convolution in 144. With many channels, each * becomes a product of matrices,
// 36 of them, which PyTorch computes between the kernels here. Tiles lie 4 pixels apart and overlap by 2. F(3x3, 4x4),
// with the same points and so the same B, computes 3 x 3 results with a 4x4 filter. Its tiles lie 3 pixels apart.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

constexpr int LANES = 16;  // channels that are computed together: a register of AVX-512, two of AVX2
template <class T> struct Types;
template <> struct Types<float> { typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)))); };
template <> struct Types<double> { typedef double Lanes __attribute__((vector_size(LANES * sizeof(double)))); };
template <class T> using Lanes = typename Types<T>::Lanes;

template <class T> inline Lanes<T> load(const T* from, int64_t channels) {
  Lanes<T> x{};
  if (channels >= LANES) std::memcpy(&x, from, sizeof x);
  else std::memcpy(&x, from, channels * sizeof(T));
  return x;
}

template <class T> inline void store(const Lanes<T>& x, T* to, int64_t channels) {
  if (channels >= LANES) std::memcpy(to, &x, sizeof x);
  else std::memcpy(to, &x, channels * sizeof(T));
}

// ---- the matrices, and their products with a tile

template <int R, int S> struct Matrix {
  double at[R][S];
  constexpr Matrix<S, R> transposed() const {
    Matrix<S, R> t{};
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) t.at[s][r] = at[r][s];
    return t;
  }
};

constexpr Matrix<6, 6> B_T{{{4, 0, -5, 0, 1, 0},
                            {0, -4, -4, 1, 1, 0},
                            {0, 4, -4, -1, 1, 0},
                            {0, -2, -1, 2, 1, 0},
                            {0, 2, -1, -2, 1, 0},
                            {0, 4, 0, -5, 0, 1}}};
template <int RESULTS> constexpr Matrix<RESULTS, 6> A_T{};
template <>
constexpr Matrix<4, 6> A_T<4>{{{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}}};
template <> constexpr Matrix<3, 6> A_T<3>{{{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 1}}};
constexpr Matrix<6, 6> B = B_T.transposed();
template <int RESULTS> constexpr Matrix<6, RESULTS> A = A_T<RESULTS>.transposed();

// Row r of M times x, whose numbers are `step` apart. The compiler leaves out what is multiplied by 0.
template <const auto& M, int r, class V, int S, int s = 0> inline V row(const V* x, int step) {
  if constexpr (s == S) return V{};
  else if constexpr (M.at[r][s] == 0) return row<M, r, V, S, s + 1>(x, step);
  else return decltype(x[0][0] + 0)(M.at[r][s]) * x[s * step] + row<M, r, V, S, s + 1>(x, step);
}

template <const auto& M, class V, int R, int S, int r = 0>
inline void multiply(const Matrix<R, S>& m, const V* x, int x_step, V* y, int y_step) {
  if constexpr (r < R) {
    y[r * y_step] = row<M, r, V, S>(x, x_step);
    multiply<M, V, R, S, r + 1>(m, x, x_step, y, y_step);
  }
}

// M X M^T for a tile X of S x S numbers: R x R.
template <const auto& M, class V, int R, int S> inline void around(const Matrix<R, S>& m, const V* x, V* y) {
  V half[R * S];
  for (int s = 0; s < S; s++) multiply<M>(m, x + s, S, half + s, S);
  for (int r = 0; r < R; r++) multiply<M>(m, half + r * S, 1, y + r * R, 1);
}

// ---- from pictures to tiles and back

// Of pictures that are convolved: with a 3x3 filter and 4 x 4 RESULTS a tile, the border of one pixel is reflected, and
// there are as many results as pixels. With a 4x4 filter and 3 x 3, it is zero, and there is one result less a side.
template <int RESULTS> struct Shape {
  int64_t n, height, width, channels;
  int64_t begin, end;  // a strip of tiles: their rows, counted over all pictures
  int64_t results_high() const { return height + RESULTS - 4; }
  int64_t results_wide() const { return width + RESULTS - 4; }
  int64_t rows() const { return (results_high() + RESULTS - 1) / RESULTS; }  // of tiles
  int64_t columns() const { return (results_wide() + RESULTS - 1) / RESULTS; }
  int64_t tiles() const { return (end - begin) * columns(); }
  int64_t pixel(int64_t picture, int64_t y, int64_t x) const {
    return ((picture * height + y) * width + x) * channels;
  }
  int64_t result(int64_t picture, int64_t y, int64_t x) const {
    return ((picture * results_high() + y) * results_wide() + x) * channels;
  }
};

inline int64_t reflected(int64_t i, int64_t size) {
  if (i < 0) i = -i;
  if (i >= size) i = 2 * size - 2 - i;
  return i < 0 ? 0 : i;  // further out than a result that is kept can see
}

// Calls body(tile, picture, y, x, k) for each tile of a strip, which begins at y and x, and each group of channels from k
// on. Rows of tiles are shared out to the threads: first every second one, then the others, since neighbours overlap.
template <int RESULTS, class Body> inline void each_tile(const Shape<RESULTS>& shape, int threads, Body body) {
  for (int64_t odd = 0; odd < 2; odd++)
#pragma omp parallel for num_threads(threads)
    for (int64_t line = shape.begin + odd; line < shape.end; line += 2) {
      const int64_t picture = line / shape.rows(), row = line % shape.rows();
      for (int64_t column = 0; column < shape.columns(); column++) {
        const int64_t tile = (line - shape.begin) * shape.columns() + column;
        for (int64_t k = 0; k < shape.channels; k += LANES) body(tile, picture, RESULTS * row, RESULTS * column, k);
      }
    }
}

// V = B^T d B, (36, tiles, C), of pictures x with their border.
template <class T, int RESULTS> void input_transform(const T* x, T* v, const Shape<RESULTS>& shape, int threads) {
  each_tile(shape, threads, [&](int64_t tile, int64_t picture, int64_t top, int64_t left, int64_t k) {
    const int64_t C = shape.channels;
    Lanes<T> d[36], out[36];
    for (int i = 0; i < 36; i++) {
      const int64_t row = top + i / 6 - 1, column = left + i % 6 - 1;
      const int64_t y = reflected(row, shape.height), x_ = reflected(column, shape.width);
      const bool inside = RESULTS == 4 || (row == y && column == x_);
      d[i] = inside ? load(x + shape.pixel(picture, y, x_) + k, C - k) : Lanes<T>{};
    }
    around<B_T>(B_T, d, out);
    for (int i = 0; i < 36; i++) store(out[i], v + (i * shape.tiles() + tile) * C + k, C - k);
  });
}

// The gradient of x, which is 0 before, from that of V: sums of B dV B^T where tiles and borders overlap.
template <class T, int RESULTS> void input_gradient(const T* dv, T* dx, const Shape<RESULTS>& shape, int threads) {
  each_tile(shape, threads, [&](int64_t tile, int64_t picture, int64_t top, int64_t left, int64_t k) {
    const int64_t C = shape.channels;
    Lanes<T> v[36], d[36];
    for (int i = 0; i < 36; i++) v[i] = load(dv + (i * shape.tiles() + tile) * C + k, C - k);
    around<B>(B, v, d);
    for (int i = 0; i < 36; i++) {
      const int64_t row = top + i / 6 - 1, column = left + i % 6 - 1;
      if (row > shape.height || column > shape.width) continue;
      const int64_t y = reflected(row, shape.height), x = reflected(column, shape.width);
      if (RESULTS != 4 && (row != y || column != x)) continue;
      T* to = dx + shape.pixel(picture, y, x) + k;
      store(load<T>(to, C - k) + d[i], to, C - k);
    }
  });
}

// Y = A^T M A: the convolution's results, from products M (36, tiles, C).
template <class T, int RESULTS> void output_transform(const T* m, T* y, const Shape<RESULTS>& shape, int threads) {
  each_tile(shape, threads, [&](int64_t tile, int64_t picture, int64_t top, int64_t left, int64_t k) {
    const int64_t C = shape.channels;
    Lanes<T> products[36], out[RESULTS * RESULTS];
    for (int i = 0; i < 36; i++) products[i] = load(m + (i * shape.tiles() + tile) * C + k, C - k);
    around<A_T<RESULTS>>(A_T<RESULTS>, products, out);
    for (int i = 0; i < RESULTS * RESULTS; i++) {
      const int64_t row = top + i / RESULTS, column = left + i % RESULTS;
      if (row < shape.results_high() && column < shape.results_wide())
        store(out[i], y + shape.result(picture, row, column) + k, C - k);
    }
  });
}

// The gradient of M from that of Y: A dY A^T.
template <class T, int RESULTS> void output_gradient(const T* dy, T* dm, const Shape<RESULTS>& shape, int threads) {
  each_tile(shape, threads, [&](int64_t tile, int64_t picture, int64_t top, int64_t left, int64_t k) {
    const int64_t C = shape.channels;
    Lanes<T> y[RESULTS * RESULTS], products[36];
    for (int i = 0; i < RESULTS * RESULTS; i++) {
      const int64_t row = top + i / RESULTS, column = left + i % RESULTS;
      const bool inside = row < shape.results_high() && column < shape.results_wide();
      y[i] = inside ? load(dy + shape.result(picture, row, column) + k, C - k) : Lanes<T>{};
    }
    around<A<RESULTS>>(A<RESULTS>, y, products);
    for (int i = 0; i < 36; i++) store(products[i], dm + (i * shape.tiles() + tile) * C + k, C - k);
  });
}

// ---- instance norm and the activation behind it: plain loops over channels, which compilers turn into vectors

constexpr int64_t RUN = 256;  // pixels whose sums are in T, and which stay in the cache; sums of runs are in double

// Calls body(picture, first, channels) with each thread's part of each picture's channels.
template <class Body> inline void each_part(int64_t n, int64_t channels, int threads, Body body) {
  const int64_t groups = (channels + LANES - 1) / LANES, part = (groups + threads - 1) / threads * LANES;
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t picture = 0; picture < n; picture++)
    for (int64_t first = 0; first < channels; first += part)
      body(picture, first, channels - first < part ? channels - first : part);
}

// Of pixels that are C numbers apart: means and mean squared distances to them, of the first `channels` numbers.
template <class T> void moments(const T* x, int64_t pixels, int64_t C, int64_t channels, double* mean, double* square) {
  std::vector<T> buffer(2 * channels);
  T *of_run = buffer.data(), *squares = of_run + channels;
  for (int64_t begin = 0; begin < pixels; begin += RUN) {
    const int64_t end = begin + RUN < pixels ? begin + RUN : pixels;
    std::fill(buffer.begin(), buffer.end(), T(0));
    for (int64_t pixel = begin; pixel < end; pixel++)
#pragma omp simd
      for (int64_t c = 0; c < channels; c++) of_run[c] += x[pixel * C + c];
#pragma omp simd
    for (int64_t c = 0; c < channels; c++) of_run[c] /= T(end - begin);
    for (int64_t pixel = begin; pixel < end; pixel++)
#pragma omp simd
      for (int64_t c = 0; c < channels; c++) {
        const T distance = x[pixel * C + c] - of_run[c];
        squares[c] += distance * distance;
      }
#pragma omp simd
    for (int64_t c = 0; c < channels; c++) {  // Chan, Golub and LeVeque 1983, section 2: two sets become one
      const double apart = of_run[c] - mean[c], share = double(end - begin) / double(end);
      mean[c] += apart * share;
      square[c] += squares[c] + apart * apart * share * double(begin);
    }
  }
#pragma omp simd
  for (int64_t c = 0; c < channels; c++) square[c] /= double(pixels);
}

// y = h where h > 0, else slope h, for h = (x - mean) / sqrt(variance + eps). Keeps each mean and 1 / deviation.
template <class T>
void norm(const T* x, T* y, T* statistics, int64_t n, int64_t pixels, int64_t C, double eps, double slope, int threads) {
  each_part(n, C, threads, [&](int64_t picture, int64_t first, int64_t channels) {
    const int64_t begin = picture * pixels * C + first;
    const T below = T(slope);
    std::vector<double> means(channels), variances(channels);
    moments(x + begin, pixels, C, channels, means.data(), variances.data());
    T *mean = statistics + picture * C + first, *scale = mean + n * C;
#pragma omp simd
    for (int64_t c = 0; c < channels; c++) {
      mean[c] = T(means[c]);
      scale[c] = T(1 / std::sqrt(variances[c] + eps));
    }
    for (int64_t pixel = 0; pixel < pixels; pixel++) {
      const T* from = x + begin + pixel * C;
      T* to = y + begin + pixel * C;
#pragma omp simd
      for (int64_t c = 0; c < channels; c++) {
        const T h = (from[c] - mean[c]) * scale[c], other = below * h;
        to[c] = h > 0 ? h : other;
      }
    }
  });
}

// dx = scale (g - mean(g) - h mean(g h)), where g is the gradient of h.
template <class T>
void norm_gradient(const T* x, const T* statistics, const T* dy, T* dx, int64_t n, int64_t pixels, int64_t C,
                   double slope, int threads) {
  each_part(n, C, threads, [&](int64_t picture, int64_t first, int64_t channels) {
    const int64_t start = picture * pixels * C + first;
    const T below = T(slope);
    const T *mean = statistics + picture * C + first, *scale = mean + n * C;
    const auto h_at = [&](int64_t pixel, int64_t c) { return (x[start + pixel * C + c] - mean[c]) * scale[c]; };
    const auto g_at = [&](int64_t pixel, int64_t c, T h) {
      const T g = dy[start + pixel * C + c], other = below * g;
      return h > 0 ? g : other;
    };
    std::vector<T> buffer(2 * channels);
    std::vector<double> sums(2 * channels);
    T *of_g = buffer.data(), *of_gh = of_g + channels;
    for (int64_t begin = 0; begin < pixels; begin += RUN) {
      std::fill(buffer.begin(), buffer.end(), T(0));
      for (int64_t pixel = begin; pixel < begin + RUN && pixel < pixels; pixel++)
#pragma omp simd
        for (int64_t c = 0; c < channels; c++) {
          const T h = h_at(pixel, c), g = g_at(pixel, c, h);
          of_g[c] += g;
          of_gh[c] += g * h;
        }
      for (int64_t i = 0; i < 2 * channels; i++) sums[i] += buffer[i];
    }
    for (int64_t i = 0; i < 2 * channels; i++) buffer[i] = T(sums[i] / double(pixels));
    for (int64_t pixel = 0; pixel < pixels; pixel++) {
      T* to = dx + start + pixel * C;
#pragma omp simd
      for (int64_t c = 0; c < channels; c++) {
        const T h = h_at(pixel, c);
        to[c] = scale[c] * (g_at(pixel, c, h) - of_g[c] - h * of_gh[c]);
      }
    }
  });
}

// ---- products of matrices, C = A B, of P pairs of matrices

constexpr int ROWS = 12, COLUMNS = 2 * LANES;  // of C, which are summed up in 24 of AVX-512's 32 registers
constexpr int64_t DEPTH = 256;                 // of so many rows of B, these columns stay in the cache, ...
constexpr int64_t HEIGHT = 8 * ROWS;           // ... and all of so many rows of A and C

// R rows and COLUMNS columns of C. Sums continue those in C, or begin.
template <int R, class T>
inline void block(const T* a, int64_t down, int64_t right, const T* b, T* c, int64_t N, int64_t depth, bool continues) {
  Lanes<T> low[R], high[R], none{};
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
    low[r] = continues ? load(c + r * N, LANES) : none;
    high[r] = continues ? load(c + r * N + LANES, LANES) : none;
  }
  for (int64_t k = 0; k < depth; k++) {
    const Lanes<T> first = load(b + k * N, LANES), second = load(b + k * N + LANES, LANES);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const T x = a[r * down + k * right];
      low[r] += x * first;
      high[r] += x * second;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
    store(low[r], c + r * N, LANES);
    store(high[r], c + r * N + LANES, LANES);
  }
}

// C (P, M, N), or what is added to it, of A, whose numbers are a[m * down + k * right], and B (P, K, N). N is a multiple
// of COLUMNS.
template <class T>
void products(const T* a, const T* b, T* c, int64_t P, int64_t M, int64_t K, int64_t N, int64_t down, int64_t right,
              int64_t add, int threads) {
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t p = 0; p < P; p++)
    for (int64_t top = 0; top < M; top += HEIGHT)
      for (int64_t k = 0; k < K; k += DEPTH)
        for (int64_t n = 0; n < N; n += COLUMNS) {
          const int64_t depth = std::min(DEPTH, K - k), bottom = std::min(top + HEIGHT, M);
          const auto rows = [&](auto compute, int64_t m) {
            compute(a + p * M * K + m * down + k * right, down, right, b + (p * K + k) * N + n, c + (p * M + m) * N + n,
                    N, depth, add || k > 0);
          };
          int64_t m = top;
          for (; m + ROWS <= bottom; m += ROWS) rows(block<ROWS, T>, m);
          for (; m + 4 <= bottom; m += 4) rows(block<4, T>, m);
          for (; m < bottom; m++) rows(block<1, T>, m);
        }
}

// ---- what Python calls

#define TRANSFORM(kernel, T, name)                                                                       \
  void name(const T* from, T* to, int64_t n, int64_t height, int64_t width, int64_t channels,            \
            int64_t results, int64_t begin, int64_t end, int threads) {                                  \
    if (results == 4) kernel(from, to, Shape<4>{n, height, width, channels, begin, end}, threads);       \
    else kernel(from, to, Shape<3>{n, height, width, channels, begin, end}, threads);                    \
  }
#define KERNELS(T)                                                                                                  \
  TRANSFORM(input_transform, T, input_transform_##T)                                                                \
  TRANSFORM(input_gradient, T, input_gradient_##T)                                                                  \
  TRANSFORM(output_transform, T, output_transform_##T)                                                              \
  TRANSFORM(output_gradient, T, output_gradient_##T)                                                                \
  void norm_##T(const T* x, T* y, T* statistics, int64_t n, int64_t pixels, int64_t channels, double eps,           \
                double slope, int threads) {                                                                        \
    norm(x, y, statistics, n, pixels, channels, eps, slope, threads);                                               \
  }                                                                                                                 \
  void norm_gradient_##T(const T* x, const T* statistics, const T* dy, T* dx, int64_t n, int64_t pixels,            \
                         int64_t channels, double slope, int threads) {                                             \
    norm_gradient(x, statistics, dy, dx, n, pixels, channels, slope, threads);                                      \
  }                                                                                                                 \
  void products_##T(const T* a, const T* b, T* c, int64_t P, int64_t M, int64_t K, int64_t N, int64_t down,         \
                    int64_t right, int64_t add, int threads) {                                                      \
    products(a, b, c, P, M, K, N, down, right, add, threads);                                                       \
  }
extern "C" {
int products_pay() {  // MKL, which PyTorch calls, is as fast on Intel's, and with AVX2 anywhere
#ifdef __AVX512F__
  return !__builtin_cpu_is("intel");
#else
  return false;
#endif
}
KERNELS(float)
KERNELS(double)
}
