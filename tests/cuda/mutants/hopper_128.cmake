# Kernels for Hopper of d 128, as compiled, in an interpreter of PTX: what they do beside those of fewer channels.
set(kernels hopper_2_128)
set(runs
  "PTXEMU_QUANTUM=40 --only d_128,_states_of_query_heads,_bf16,_rows rows_of_architectures"
  "PTXEMU_REVERSE=1 --only d_128,_grouped_heads,_bf16,_rows rows_of_architectures"
  "PTXEMU_REVERSE=1 --only d_128,_chunks,_fp16 architectures")

set(source cuda/src/hopper/tile_ring.hpp)
mutant(six_slots_as_eight "count & (slots - 1) : count % slots" "count & (slots - 1) : count & 7")

set(source cuda/src/hopper/state_walk.hpp)
mutant(rows_of_one_part "const int own = first_row + row" "const int own = row")
mutant(columns_of_one_part "other = first_column + four + i" "other = four + i")
mutant(first_columns_of_s "* e + channel + c, e, 0" "* e + c, e, 0")
mutant(vectors_overlap "2 * parts + own * column_tiles" "2 * parts + own")
mutant(w_of_a_tile "tile + static_cast<std::uint32_t>(c) * tile_step, c > 0" "tile, c > 0")
mutant(first_tile_kept "if constexpr (column_tiles > 1) consumer.release(consumer.at.slot() - 1);" "")
mutant(z_of_queries_overlaps "sums().put(8 * part + o" "sums().put(o")

set(source cuda/src/hopper/query_gradients.hpp)
mutant(c_of_a_tile "values + p * tile_step" "values")
mutant(keys_of_one_part "add_product(d_query[p], dx, keys + p * tile_step)" "add_product(d_query[p], dx, keys)")
mutant(same_channels_of_keys "are_keys ? part : part - parts" "0")

set(source cuda/src/hopper/attention.hpp)
mutant(queries_overlap "(own * tiles + t) * parts" "own * tiles + t")
mutant(same_columns "column = head % columns(x.e) * 64;" "column = 0;")
mutant(one_part_of_q_z "const Pair<T> pair = left[part]" "const Pair<T> pair = left[0]")
mutant(score_of_one_part "                part > 0);" "                false);")
mutant(a_tile_kept "for (int n = 0; n <= parts; ++n) consumer.release" "for (int n = 0; n < parts; ++n) consumer.release")

set(source cuda/src/hopper/update.hpp)
mutant(parts_alike "return n + of_columns() / pairs_of_part * 8;" "return n;")
# Another order of items.
survivor(quads_exchanged "n + both / 2 * 4 : n + 4 + both % 2 * 4" "n + both % 2 * 4 : n + 4 + both / 2 * 4")
mutant(quads_of_one_part "n + both / 2 * 4 : n + 4 + both % 2 * 4" "n : n + 4 + both % 2 * 4")
mutant(no_gap "8 * (item.octet(4) - item.octet(0) - 4)" "0")
mutant(values_overlap "slot == 0 ? memory.own_tile(0, slots) : memory.tile(slots)" "memory.own_tile(0, slots)")
mutant(columns_of_a_tile "n % column_tiles * tile_step" "0u * tile_step")
mutant(units_of_four "is_across, unit % column_tiles * unit_tiles" "is_across, 0")
mutant(second_part_not_weighed "parts > 1 && (of_normaliser >> slot & 256u)" "false")
mutant(z_of_one_part "if (item.is_of_both()) right" "if (false) right")
mutant(z_beside_its_place "item.is_of_both() ? 64 : 8 * item.octet(0)" "8 * item.octet(0)")
