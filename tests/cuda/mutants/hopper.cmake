# Kernels for Hopper, as compiled, in an interpreter of PTX: each line is one wait, arrival, count, parity or predicate.
set(kernels hopper_2_16)
set(runs
  "PTXEMU_REVERSE=1 PTXEMU_QUANTUM=7 --only d_16,_more_stages_than_slots,_bf16,_rows rows_of_architectures"
  "PTXEMU_QUANTUM=40 --only d_16,_grouped_heads,_bf16,_rows rows_of_architectures"
  "PTXEMU_UNINIT=1 --only d_16,_gates_of_0,_chunks,_bf16 rows_of_architectures architectures"
  "PTXEMU_REVERSE=1 --only d_16,_grouped_heads,_bf16 architectures")

# ---- the ring of tiles ----
set(source cuda/src/hopper/tile_ring.hpp)
# The interpreter's copies come at once: of a tile that is called full too early all is there.
survivor(one_arrival_less "static constexpr int arrivals = 33;" "static constexpr int arrivals = 32;")
mutant(arrivals_of_own "4 * arrivals" "3 * arrivals")
mutant(release_by_seven "barrier_init(empty(n), 8)" "barrier_init(empty(n), 7)")
mutant(release_own_by_seven "barrier_init(own_empty(n), 8)" "barrier_init(own_empty(n), 7)")
mutant(ring_barriers "full(ring_slots + slot)" "full(slot)")
mutant(own_barriers "full(2 * ring_slots + 2 + buffer)" "full(2 * ring_slots + buffer)")
mutant(parity_of_count "count / slots & 1" "count & 1")
mutant(parity_of_place "at = 0, round ^= 1;" "at = 0;")
mutant(copies_into_full "barrier_wait(memory_.barriers.empty(at.slot()), at.parity() ^ 1);" "")
mutant(wrong_round_empty "barrier_wait(memory_.barriers.empty(at.slot()), at.parity() ^ 1);" "barrier_wait(memory_.barriers.empty(at.slot()), at.parity());")
mutant(own_into_full "barrier_wait(memory_.barriers.own_empty(buffer_.slot()), buffer_.parity() ^ 1);" "")
mutant(copies_not_announced "    barrier_arrive_with_copies(barrier);\n" "    barrier_arrive(barrier);\n")
mutant(second_normaliser_tile_not_empty "    wait_for_empty(first);\n    wait_for_empty(at_);\n" "    wait_for_empty(first);\n")
# The four copying warps have written before a consumer reads.
survivor(normaliser_half_written "block::bar_sync(3, group_threads);" "")
mutant(one_tile_for_two "    if (is_mine(at_)) announce(memory_.barriers.full(at_.slot()));\n    at_.advance();\n  }\n  /// Copies rows" "    if (is_mine(at_)) announce(memory_.barriers.full(first.slot()));\n    at_.advance();\n  }\n  /// Copies rows")
mutant(finishes_too_early "block::cp_async_wait<1>();" "block::cp_async_wait<2>();")
mutant(own_group_is_the_last "if (waits) block::cp_async_commit();" "")
# Only slower: a tile is finished when the next slot is empty.
survivor(waits_for_itself "if ((turn == 0) == waits) {" "if (turn == 1) {")
mutant(last_tile_not_finished "    block::cp_async_commit();\n    finish_tile(finish);" "    finish_tile(finish);")
mutant(every_third_tile "return (at.count & 3) == warp();" "return at.count % 3 == warp();")
mutant(all_rows_exist "if (first <= 0 && end >= tile_rows) {" "if (first <= 0) {")
# Rows before the first have no weight; they matter where they are not finite.
survivor(no_row_is_before "if (first <= 0 && end >= tile_rows) {" "if (end >= tile_rows) {")
mutant(one_row_more "row + n < end" "row + n <= end")
mutant(one_row_less "row + n >= first" "row + n > first")
mutant(all_channels "const bool exists = 8 * octet < channels;" "const bool exists = 8 * octet <= channels;")
mutant(not_swizzled "16 * (octet ^ row)" "16 * octet")
mutant(rows_by_eight "const std::uint32_t to = tile.address + 128 * row + 16 * (octet ^ row), other = to ^ 64;" "const std::uint32_t to = tile.address + 128 * row + 16 * (octet ^ row), other = to;")
mutant(tile_not_awaited "barrier_wait(memory.barriers.full(at.slot()), at.parity());" "")
mutant(own_not_awaited "barrier_wait(memory.barriers.own_full(buffer.slot()), buffer.parity());" "")
mutant(never_released "if (block::lane() == 0) barrier_arrive(memory.barriers.empty(slot));" "")
mutant(skips_unseen "      wait();\n      release(at.slot());" "      release(at.slot());")

# ---- sums of chunks ----
set(source cuda/src/hopper/update.hpp)
mutant(keys_stay "if (as_rows) stmatrix(" "if (false) stmatrix(")
mutant(bit_of_another_slot "of_normaliser >> slot & 1u" "of_normaliser >> (slot ^ 4) & 1u")
mutant(weight_not_a_root "square_root(weight[n])" "weight[n]")
mutant(row_has_no_unit "(is_row ? 1.f : inverse[n])" "inverse[n]")
mutant(offset_not_in_units "is_row ? offset[n] * units[0] : 1.f" "is_row ? offset[n] : 1.f")
# Rows of these tokens are 0; the predicate is for uninitialized weights.
survivor(tokens_before_count "token + n >= bounds[0] &&" "")
survivor(tokens_behind_count "&& token + n < bounds[1]" "")
# The interpreter has no lanes ahead of their warp.
survivor(weights_of_other_lanes "    block::warp_barrier();\n  }\n  /// k̃ᵀ, and for Z" "  }\n  /// k̃ᵀ, and for Z")
mutant(half_of_the_tokens "32 * half + 8 * n + lane % 4 * 2" "8 * n + lane % 4 * 2")
mutant(next_octet "(octet + 1) % 8" "octet")
# Only slower: lanes read the same banks.
survivor(columns_not_exchanged "(step ^ channel % 4)" "step")
mutant(one_step_for_all "place ^ 32 * step" "place")
mutant(heads_of_one_octet "tiles.row(1) : tiles.other_a" "tiles.row(1) : tiles.a")
# d 16 has one unit, of two tiles.
survivor(second_tile "block::where(tiles.count > 1, first, other)" "first")
survivor(three_tiles "if (count != 3) return;" "if (count != 2) return;")
# nvcc gives φ other registers.
survivor(phi_overwritten "products_wait<1>();  // all but the last 16 tokens" "products_wait<2>();")
# The next copies do not come so soon.
survivor(released_too_early "if (s == 1 && held >= 0)" "if (s == 0 && held >= 0)")
mutant(sums_not_awaited "      products_wait<0>();\n      if (held >= 0) consumer.release(held);\n      pin(sum);\n      int index" "      if (held >= 0) consumer.release(held);\n      pin(sum);\n      int index")
mutant(left_of_another_group "heads[0][r % 2][r / 2]" "heads[0][r % 2][0]")
mutant(stage_not_awaited "        consumer.wait();\n        pin(places.tails)" "        pin(places.tails)")
mutant(normaliser_product_not_awaited "        products_commit();\n        products_wait<0>();\n        consumer.release(consumer.at.slot());\n      }\n      pin(sum);\n      store_normaliser" "        products_commit();\n        consumer.release(consumer.at.slot());\n      }\n      pin(sum);\n      store_normaliser")
mutant(rows_of_left "left[s][2 * n + g]" "left[s][2 * g + n]")

# ---- walks through a state ----
set(source cuda/src/hopper/state_walk.hpp)
mutant(half_an_octet "octet_place<64>(row, four / 8) + four % 8" "octet_place<64>(row, four / 8)")
mutant(diagonal_once "(lower == upper ? 2.f : 1.f)" "1.f")
# Within the bound.
survivor(one_term_of_z "entries[2 * p] - block::lower(terms[0][p])" "0.f")
# The same for two octets.
survivor(order_of_tiles "return b * (b + 1) / 2 + a;" "return a * (a + 1) / 2 + b;")
mutant(w_not_awaited "          products_commit();\n          products_wait<1>();  // W" "          products_commit();")
mutant(phi_of_the_tile_before "products_wait<1>();  // φ of the tile before" "")
mutant(last_product_not_awaited "      products_wait<0>();\n      consumer.release(held);\n      pin(product);" "      consumer.release(held);\n      pin(product);")
mutant(w_alone_not_awaited "        } else {\n          products_wait<0>();" "        } else {")

# ---- gradients and rows ----
set(source cuda/src/hopper/key_gradients.hpp)
mutant(key_scores_not_awaited "        products_commit();\n        products_wait<0>();\n        release();\n        held = slot;" "        products_commit();\n        release();\n        held = slot;")
mutant(keys_see_all "reset[0] <= item.last_key(own) &&" "")
mutant(earlier_rows "8 * o + block::lane() % 4 * 2 + h >= key &&" "")
set(source cuda/src/hopper/query_gradients.hpp)
mutant(query_scores_not_awaited "        products_commit();\n        products_wait<0>();\n        release();\n        held = slot;" "        products_commit();\n        release();\n        held = slot;")
mutant(hidden_keys_weigh "from + place >= first_key &&" "")
mutant(later_keys "key <= row &&" "")
set(source cuda/src/hopper/attention.hpp)
mutant(rows_see_later_keys "first + h <= row() + 8 * g &&" "")
mutant(score_not_awaited "          products_wait<0>();\n          if (held >= 0) release(held);" "          if (held >= 0) release(held);")
# Such keys are copied as 0.
survivor(hidden_keys_of_rows "from + place + h >= seen" "true")
mutant(phi_of_rows_overwritten "products_wait<1>();  // those of the tile before with this φ" "")
