// The sizes of an attention layer, and the weights that follow from them.
#pragma once

#include <utility>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE {

/// Sizes of an attention layer.
struct LayerShape {
  Index d_model = 0;    ///< numbers of a token
  Index heads = 0;      ///< H, of queries
  Index key_heads = 0;  ///< H_kv, a divisor of H; 0 is H
  Index d = 0;          ///< key dimension of a head
  Index e = 0;          ///< value dimension of a head
};

/// The weights of a layer, or gradients of them. `LayerLayout::for_each` has views of them by name.
template <class S>
struct LayerWeights {
  using Scalar = S;
  Matrix<S> in;      ///< [W_Q; W_K; W_V; W_Z], rows × d_model
  Matrix<S> out;     ///< W_O, d_model × H e
  Matrix<S> recipe;  ///< n_p × H_kv
};

/// What follows from the sizes of a layer alone: how many weights it has, and where they lie.
class LayerLayout {
 public:
  /// Of a layer whose recipe takes so many logits of a token, and learns so many parameters, for every key head. Throws
  /// `ShapeMismatch` for a size that is not positive and heads that key heads do not divide.
  LayerLayout(LayerShape shape, Index logits, Index recipe_parameters)
      : shape_(shape), logits_(logits), recipe_parameters_(recipe_parameters) {
    if (shape_.key_heads == 0) shape_.key_heads = shape_.heads;
    for (const auto& [name, size] : {std::pair{"d_model", shape_.d_model},
                                     {"heads", shape_.heads},
                                     {"key_heads", shape_.key_heads},
                                     {"d", shape_.d},
                                     {"e", shape_.e}})
      if (size < 1) detail::raise<ShapeMismatch>("layer: ", name, " is ", size, ", must be at least 1");
    if (shape_.heads % shape_.key_heads != 0)
      detail::raise<ShapeMismatch>("layer: key_heads is ", shape_.key_heads, ", must divide heads, which is ",
                                   shape_.heads);
  }

  [[nodiscard]] const LayerShape& shape() const { return shape_; }              ///< `key_heads` being H_kv, never 0
  [[nodiscard]] Index logits() const { return logits_; }                        ///< n_z, of a key head
  [[nodiscard]] Index recipe_parameters() const { return recipe_parameters_; }  ///< n_p, of a key head
  /// Number of weights.
  [[nodiscard]] Index size() const {
    return shape_.d_model * (projected() + shape_.heads * shape_.e) + shape_.key_heads * recipe_parameters();
  }
  /// Numbers that a token is projected to: H d, H_kv d, H_kv e and H_kv n_z of Q, K, V and Z.
  [[nodiscard]] Index projected() const { return first_logit() + shape_.key_heads * logits(); }
  [[nodiscard]] Index first_key() const { return shape_.heads * shape_.d; }  ///< row of K in [Q; K; V; Z]
  [[nodiscard]] Index first_value() const { return first_key() + shape_.key_heads * shape_.d; }    ///< of V
  [[nodiscard]] Index first_logit() const { return first_value() + shape_.key_heads * shape_.e; }  ///< of Z

  /// Weights that are all 0: the gradients to begin with.
  template <class Scalar>
  [[nodiscard]] LayerWeights<Scalar> zeros() const {
    return {Matrix<Scalar>::Zero(projected(), shape_.d_model),
            Matrix<Scalar>::Zero(shape_.d_model, shape_.heads * shape_.e),
            Matrix<Scalar>::Zero(recipe_parameters(), shape_.key_heads)};
  }

  /// f(name, matrix) for W_Q, W_K, W_V, W_Z, W_O and what is learned of the recipe, in this order, of weights that may
  /// be const.
  template <class Weights, class Function>
  void for_each(Weights& w, const Function& f) const {
    check(w);
    const Index keys = first_value() - first_key(), values = first_logit() - first_value();
    f("W_Q", w.in.topRows(first_key()));
    f("W_K", w.in.middleRows(first_key(), keys));
    f("W_V", w.in.middleRows(first_value(), values));
    f("W_Z", w.in.bottomRows(projected() - first_logit()));
    f("W_O", w.out.leftCols(w.out.cols()));
    f("recipe", w.recipe.leftCols(w.recipe.cols()));
  }

  /// Throws `ShapeMismatch` unless weights have the shapes of this layer.
  template <class Scalar>
  void check(const LayerWeights<Scalar>& w) const {
    const auto agree = [](const char* what, const Matrix<Scalar>& x, Index rows, Index columns) {
      if (x.rows() != rows || x.cols() != columns)
        detail::raise<ShapeMismatch>("weights of the layer: ", what, " is ", x.rows(), " × ", x.cols(), ", must be ",
                                     rows, " × ", columns);
    };
    agree("in", w.in, projected(), shape_.d_model);
    agree("out", w.out, shape_.d_model, shape_.heads * shape_.e);
    agree("recipe", w.recipe, recipe_parameters(), shape_.key_heads);
  }

 private:
  LayerShape shape_;
  Index logits_, recipe_parameters_;
};

}  // namespace SYMPOW_NAMESPACE
