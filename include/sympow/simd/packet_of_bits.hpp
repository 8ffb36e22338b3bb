// Packets as integers.
#pragma once

#include <sympow/simd/packed_product.hpp>
#include <sympow/simd/power_of_two.hpp>

namespace SYMPOW_NAMESPACE::detail {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"  // packet attributes

/// An integer vector with the bits of a packet.
template <class Scalar, class Word = Bits<Scalar>>
struct PacketOfBits {
  using type [[gnu::vector_size(sizeof(packets::Packet<Scalar>))]] = Word;
};
template <class Scalar, class Word>
  requires(packets::lanes<Scalar> == 1)
struct PacketOfBits<Scalar, Word> {
  using type = Word;
};

#pragma GCC diagnostic pop

}  // namespace SYMPOW_NAMESPACE::detail
