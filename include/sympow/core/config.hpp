// Index type, version, ABI namespace. Needs no Eigen.
#pragma once

#include <cfloat>
#include <cstddef>

#if defined(__apple_build_version__) ? __clang_major__ < 15 : defined(__clang__) && __clang_major__ < 16
#error "sympow needs g++ 12, clang 16 or Apple's clang 15, or a newer one"
#endif
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error \
    "sympow needs IEEE arithmetic: compile without -ffast-math, -Ofast, -funsafe-math-optimizations, -ffinite-math-only, -fp-model=fast"
#elif FLT_EVAL_METHOD == 1 || FLT_EVAL_METHOD == 2 || FLT_EVAL_METHOD == -1
#error "sympow needs operations that round to their type: on 32-bit x86 compile with -msse2 -mfpmath=sse"
#endif
/// x rounded to its type; the compiler does not reorder sums across it. clang++ does not announce -fassociative-math to
/// the preprocessor; the check above covers g++.
#if defined(__clang__) && (defined(__x86_64__) || defined(__i386__) || defined(__aarch64__))
#define SYMPOW_ROUNDED(...) __arithmetic_fence(__VA_ARGS__)
#else
#define SYMPOW_ROUNDED(...) (__VA_ARGS__)
#endif

// Code for different vector lengths must not mix, because the linker would take either definition. The library's names
// therefore carry the instruction set in an inline namespace: `sympow::Decay` is `sympow::avx2_fma::Decay`. Objects of
// different settings link side by side; passing a type between them fails to link. Declarations without code or vectors
// (options, errors, sizes) are in `sympow` itself.
#if defined(EIGEN_DONT_VECTORIZE)
#define SYMPOW_INSTRUCTIONS scalar
#elif defined(__AVX512F__)
#define SYMPOW_INSTRUCTIONS avx512
#elif defined(__AVX2__) && defined(__FMA__)
#define SYMPOW_INSTRUCTIONS avx2_fma
#elif defined(__AVX2__)
#define SYMPOW_INSTRUCTIONS avx2
#elif defined(__AVX__) && defined(__FMA__)
#define SYMPOW_INSTRUCTIONS avx_fma
#elif defined(__AVX__)
#define SYMPOW_INSTRUCTIONS avx
#elif defined(__SSE4_2__)
#define SYMPOW_INSTRUCTIONS sse4
#elif defined(__ARM_FEATURE_SVE)
#define SYMPOW_INSTRUCTIONS sve
#else
#define SYMPOW_INSTRUCTIONS baseline
#endif

/// The namespace to open where names are declared. Users write `sympow`.
#define SYMPOW_NAMESPACE sympow::inline SYMPOW_INSTRUCTIONS

/// The version of the library, also for the preprocessor: 10000 major + 100 minor + patch.
#define SYMPOW_VERSION 200

/// Attention whose scores are powers of inner products, and the algebra that makes it a recurrence.
namespace sympow {

/// The version of the library; `SYMPOW_VERSION` says the same to the preprocessor.
inline constexpr const char* library_version = "0.2.0";

/// Signed size and position, the type that Eigen uses by default.
using Index = std::ptrdiff_t;

/// A size that is known at run time only; equal to Eigen::Dynamic.
inline constexpr int Dynamic = -1;

/// The largest supported power p: C(d + 7, 8) exceeds any memory long before it overflows the index type.
inline constexpr int max_power = 8;

}  // namespace sympow
