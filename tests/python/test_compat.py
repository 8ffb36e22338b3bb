"""Functions with the names and arguments of other packages, against their definitions token by token."""
import sys
import unittest

try:
    import torch
except ImportError:
    print("PyTorch is not installed for", sys.executable, "- functions of other packages are not tested: ./dev python")
    sys.exit(77)

import sympow
import sympow.torch
from sympow.compat import fla, retention

B, T, H, K, V = 2, 37, 4, 8, 6


def tensors(heads=H, dtype=torch.float64, batch=B):
    torch.manual_seed(1)
    q, k = (torch.randn(batch, T, h, K, dtype=dtype) for h in (H, heads))
    v, g = torch.randn(batch, T, heads, V, dtype=dtype), torch.nn.functional.logsigmoid(torch.randn(batch, T, heads, dtype=dtype) + 3)
    return q, k, v, g


def recurrence(q, k, v, g, scale, S, w=None, beta=None):
    """Gates of heads or of channels; with w and beta S goes through I - β w wᵀ."""
    rows = []
    for t in range(q.shape[1]):
        S = S * g[:, t].exp().reshape(*g.shape[:1], g.shape[2], -1, 1)
        if w is not None:
            S = S - (beta[:, t, :, None] * w[:, t])[..., None] * torch.einsum("bhk,bhkv->bhv", w[:, t], S)[:, :, None]
        S = S + k[:, t, :, :, None] * v[:, t, :, None, :]
        rows.append(scale * torch.einsum("bhkv,bhk->bhv", S, q[:, t]))
    return torch.stack(rows, 1), S


def means(q, k, v, g, weigh, causal=True):
    groups = q.shape[2] // k.shape[2]
    k, v, g = (x.repeat_interleave(groups, 2) for x in (k, v, g))
    total = g.cumsum(1).transpose(1, 2)
    scores = torch.einsum("bthd,bshd->bhts", q, k)
    weights = weigh(scores, total[..., :, None] - total[..., None, :])
    if causal:
        weights = weights.tril()
    return torch.einsum("bhts,bshe->bthe", weights / weights.sum(-1, keepdim=True), v)


class Compat(unittest.TestCase):
    def close(self, found, expected):
        self.assertEqual(found.shape, expected.shape)
        self.assertTrue(torch.allclose(found, expected, rtol=1e-11, atol=1e-11), (found - expected).abs().max())

    def test_arguments_without_a_meaning_here(self):
        q, k, v, g = tensors()
        for name in ("use_gate_in_kernel", "nonsense"):
            with self.assertRaisesRegex(sympow.NotBuilt, f"{name} is given"):
                sympow.compat.fla.chunk_simple_gla(q, k, v, g, **{name: True})
        self.close(fla.chunk_simple_gla(q, k, v, g, head_first=False, chunk_size=16)[0], fla.chunk_simple_gla(q, k, v, g)[0])

    def test_simple_gla(self):
        q, k, v, g = tensors()
        S = torch.randn(B, H, K, V, dtype=torch.float64)
        for f in (fla.chunk_simple_gla, fla.fused_recurrent_simple_gla):
            for scale in (None, 0.3):
                found = f(q, k, v, g, scale=scale, initial_state=S, output_final_state=True)
                for x, expected in zip(found, recurrence(q, k, v, g, scale or K ** -0.5, S)):
                    self.close(x, expected)
            self.assertIsNone(f(q, k, v, g)[1])
        zeros = torch.zeros_like(S)
        self.close(fla.parallel_simple_gla(q, k, v, g)[0], recurrence(q, k, v, g, K ** -0.5, zeros)[0])
        flat = fla.chunk_simple_gla(q, k, v, g, initial_state=S.transpose(2, 3), output_final_state=True, state_v_first=True)
        self.close(flat[1].transpose(2, 3), recurrence(q, k, v, g, K ** -0.5, S)[1])
        with self.assertWarnsRegex(DeprecationWarning, "transpose_state_layout is deprecated, must be state_v_first"):
            old = fla.chunk_simple_gla(q, k, v, g, initial_state=S.transpose(2, 3), output_final_state=True, transpose_state_layout=True)
        self.close(old[1], flat[1])
        gamma = torch.tensor([-0.1, -0.2, -0.3, 0], dtype=torch.float64)
        self.close(fla.chunk_simple_gla(q, k, v, g_gamma=gamma)[0],
                   recurrence(q, k, v, gamma.expand(B, T, H), K ** -0.5, zeros)[0])

    def test_gradients_also_of_states(self):
        given = [x.requires_grad_() for x in (*tensors(), torch.randn(B, H, K, V, dtype=torch.float64))]
        of = []
        for f in (lambda q, k, v, g, S: fla.chunk_simple_gla(q, k, v, g, initial_state=S, output_final_state=True),
                  lambda q, k, v, g, S: recurrence(q, k, v, g, K ** -0.5, S)):
            rows, S = f(*given)
            of.append(torch.autograd.grad(rows.sin().sum() + S.cos().sum(), given))
        for found, expected in zip(*of):
            self.close(found, expected)

    def test_gla(self):
        q, k, v, _ = tensors()
        g = torch.nn.functional.logsigmoid(torch.randn(B, T, H, K, dtype=torch.float64) + 3)
        S = torch.randn(B, H, K, V, dtype=torch.float64)
        calls = (lambda *x: fla.chunk_gla(*x[:4], initial_state=x[4], output_final_state=True),
                 lambda *x: fla.fused_recurrent_gla(*x[:4], initial_state=x[4], output_final_state=True))
        self.close_with_gradients(calls, lambda *x: recurrence(*x[:4], K ** -0.5, x[4]), (q, k, v, g, S))
        self.close(fla.chunk_gla(q, k, v, g, 0.3)[0], recurrence(q, k, v, g, 0.3, torch.zeros_like(S))[0])
        with self.assertRaisesRegex(sympow.NotBuilt, "gv must be None|gv is"):
            fla.fused_recurrent_gla(q, k, v, g, gv=g)

    def test_what_decays_below_float32_is_0_where_nothing_asks_for_its_state(self):
        padded = torch.cat([torch.ones(1, 1, 1, 4), torch.zeros(1, 400, 1, 4)], 1)
        gates, strengths = torch.full((1, 401, 1, 4), -.5), torch.full((1, 401, 1), .5)
        before = torch.ones(1, 1, 4, 4, requires_grad=True)
        for state in (None, before):
            rows, last = fla.chunk_kda(padded, padded, padded, gates, strengths, initial_state=state)
            self.assertIsNone(last)
            self.assertTrue(torch.isfinite(rows).all())
        ones = torch.ones(1, 401, 1, 4)
        fla.chunk_kda(ones, ones / 2, ones, gates, strengths, initial_state=before)[0][:, -1].sum().backward()
        self.assertTrue((before.grad == 0).all())

    def test_delta_rules(self):
        q, k, v, g = tensors()
        beta = torch.rand(B, T, H, dtype=torch.float64)
        S = torch.randn(B, H, K, V, dtype=torch.float64)

        def unit(x):
            return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)

        def expected(q, k, v, g, beta, S):
            return recurrence(unit(q), unit(k), v * beta[..., None], g, K ** -0.5, S, unit(k), beta)

        calls = [lambda *x, f=f: f(*x[:4], beta=x[4], initial_state=x[5], output_final_state=True, use_qk_l2norm_in_kernel=True)
                 for f in (fla.chunk_gated_delta_rule, fla.fused_recurrent_gated_delta_rule)]
        self.close_with_gradients(calls, expected, (q, k, v, g, beta, S))
        channels = torch.nn.functional.logsigmoid(torch.randn(B, T, H, K, dtype=torch.float64))
        calls = [lambda *x, f=f: f(*x[:5], initial_state=x[5], output_final_state=True, use_qk_l2norm_in_kernel=True)
                 for f in (fla.chunk_kda, fla.fused_recurrent_kda)]
        self.close_with_gradients(calls, expected, (q, k, v, channels, beta, S))
        for given in (dict(use_gate_in_kernel=True), dict(A_log=g), dict(dt_bias=g)):
            with self.assertRaisesRegex(sympow.InvalidArgument, "A_log"):
                fla.fused_recurrent_kda(q, k, v, channels, beta, **given)
        for f in (fla.chunk_delta_rule, fla.fused_recurrent_delta_rule):
            self.close(f(q, unit(k), v, beta)[0], recurrence(q, unit(k), v * beta[..., None], torch.zeros_like(g),
                                                             K ** -0.5, torch.zeros_like(S), unit(k), beta)[0])
        self.close(fla.fused_recurrent_gated_delta_rule(q, unit(k), v, None, channels, None, beta)[0],
                   fla.chunk_kda(q, unit(k), v, channels, beta)[0])
        for name, given in (("beta", (g, beta[..., None])), ("beta", (g, beta[:, :5])), ("g", (g[:, :5], beta))):
            with self.assertRaisesRegex(sympow.ShapeMismatch, rf"{name}: shape is \[2, .*must be \[2, 37, 4\] of \[B, T, HV\]"):
                fla.chunk_gated_delta_rule(q, k, v, *given)
        with self.assertRaisesRegex(sympow.ShapeMismatch, r"initial_state: shape is .* of \[N, H, K, V\]"):
            fla.chunk_gated_delta_rule(q, k, v, g, beta, initial_state=S[:, :, :3])

    def test_delta_rules_of_halves(self):
        """Norms are made in float32, and β may be of another type than the values."""
        for dtype in (torch.float16, torch.bfloat16):
            q, k, v, g = (x.to(dtype) for x in tensors())
            beta = torch.rand(B, T, H)
            wanted = fla.chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)[0]
            self.assertEqual(wanted.dtype, dtype)
            found = fla.chunk_gated_delta_rule(256 * q, 256 * k, v, g, beta, use_qk_l2norm_in_kernel=True)[0]
            torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)
            raw = torch.randn(B, T, H).to(dtype)  # whose σ is not rounded to halves
            self.assertTrue(torch.equal(
                fla.chunk_gated_delta_rule(q, k, v, g, raw, use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True)[0],
                fla.chunk_gated_delta_rule(q, k, v, g, raw.float().sigmoid(), use_qk_l2norm_in_kernel=True)[0]))

    def test_delta_rules_of_more_values_than_keys(self):
        q, k, v, g = tensors(2 * H)
        q, k = q, torch.nn.functional.normalize(k[:, :, :H], dim=-1)
        raw, A_log = torch.randn(B, T, 2 * H, dtype=torch.float64), torch.randn(2 * H, dtype=torch.float64)
        S = torch.randn(B, 2 * H, K, V, dtype=torch.float64)
        wide, bias = torch.randn(B, T, 2 * H, K, dtype=torch.float64), torch.randn(2 * H * K, dtype=torch.float64)

        def expected(q, k, v, g, raw, S):
            q, k, beta = q.repeat_interleave(2, 2), k.repeat_interleave(2, 2), 2 * raw.sigmoid()
            rows, S = recurrence(q, k, v * beta[..., None], g, K ** -0.5, S.transpose(2, 3), k, beta)
            return rows, S.transpose(2, 3)

        options = dict(use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True, state_v_first=True, output_final_state=True)
        S = S.transpose(2, 3).contiguous()
        calls = [lambda q, k, v, g, raw, S, f=f: f(q, k, v, g, beta=raw, initial_state=S, **options)
                 for f in (fla.chunk_gated_delta_rule, fla.fused_recurrent_gated_delta_rule)]
        self.close_with_gradients(calls, expected, (q, k, v, g, raw, S))
        for lower_bound in (None, -5.0):
            def in_kernel(q, k, v, wide, raw, S, A_log, bias):
                x = wide + bias.view(2 * H, K)
                gates = (-A_log.exp()[:, None] * torch.nn.functional.softplus(x) if lower_bound is None
                         else lower_bound * (A_log.exp()[:, None] * x).sigmoid())
                return expected(q, k, v, gates, raw, S)

            calls = [lambda q, k, v, wide, raw, S, A_log, bias, f=f: f(
                q, k, v, wide, raw, A_log=A_log, dt_bias=bias, lower_bound=lower_bound, initial_state=S, use_gate_in_kernel=True,
                **options) for f in (fla.chunk_kda, fla.fused_recurrent_kda)]
            self.close_with_gradients(calls, in_kernel, (q, k, v, wide, raw, S, A_log, bias))
        with self.assertRaisesRegex(sympow.ShapeMismatch, r"v: shape\[2\] is 7, must be a multiple of 4"):
            fla.chunk_gated_delta_rule(q, k, v[:, :, :7], g[:, :, :7], raw[:, :, :7])

    def test_from_the_last_token_to_the_first(self):
        q, k, v, g = tensors(batch=1)
        S = torch.randn(3, H, K, V, dtype=torch.float64)
        bounds = [0, 9, 9, T]
        rows, states = fla.fused_recurrent_simple_gla(q, k, v, g, initial_state=S, output_final_state=True, reverse=True,
                                                      cu_seqlens=torch.tensor(bounds))
        for n, (begin, end) in enumerate(zip(bounds, bounds[1:])):
            if begin < end:
                expected = recurrence(*(x[:, begin:end].flip(1) for x in (q, k, v, g)), K ** -0.5, S[n:n + 1])
                self.close(rows[:, begin:end], expected[0].flip(1))
                self.close(states[n:n + 1], expected[1])
        channels = torch.nn.functional.logsigmoid(torch.randn(1, T, H, K, dtype=torch.float64))
        self.close(fla.fused_recurrent_gla(q, k, v, channels, reverse=True)[0],
                   recurrence(*(x.flip(1) for x in (q, k, v, channels)), K ** -0.5, 0 * S[:1])[0].flip(1))

    def test_path(self):
        q, k, v, g = tensors()
        w = torch.nn.functional.normalize(torch.randn(B, T, H, K, dtype=torch.float64), dim=-1)
        beta = 2 * torch.rand(B, T, H, dtype=torch.float64)

        def expected(q, k, v, g, w, beta):
            moved, rows = k[:, :0], []  # keys as the last token sees them
            for t in range(T):
                along = torch.einsum("bshk,bhk->bsh", moved, w[:, t])
                moved = torch.cat([moved - (beta[:, t, None] * along)[..., None] * w[:, t, None], k[:, t:t + 1]], 1)
                logits = torch.einsum("bshk,bhk->bhs", moved, q[:, t])
                logits = K ** -0.5 * (logits + (g[:, :t + 1].sum(1, keepdim=True) - g[:, :t + 1].cumsum(1)).transpose(1, 2))
                rows.append(torch.einsum("bhs,bshv->bhv", logits.softmax(-1), v[:, :t + 1]))
            return torch.stack(rows, 1),

        self.close_with_gradients([lambda q, k, v, g, w, beta: fla.parallel_path_attention(q, k, v, w, beta, g)[:1]],
                                  expected, (q, k, v, g, w, beta))

    def test_packed_sequences_have_parameters_of_their_own(self):
        q, k, v, _ = tensors(batch=1)
        g = torch.nn.functional.logsigmoid(torch.randn(1, T, H, K, dtype=torch.float64))
        rows, _ = fla.chunk_gla(q, k, v, g, cu_seqlens=torch.tensor([0, 9, 9, T]))
        for part in (slice(0, 9), slice(9, T)):
            self.close(rows[:, part], fla.chunk_gla(*(x[:, part] for x in (q, k, v, g)))[0])

    def close_with_gradients(self, calls, expected, given):
        given = [x.clone().requires_grad_() for x in given]
        of = []
        for f in (*calls, expected):
            results = f(*given)
            loss = results[0].sin().sum() + sum(x.cos().sum() for x in results[1:])
            of.append((*results, *torch.autograd.grad(loss, given)))
        for found in of[:-1]:
            for x, y in zip(found, of[-1]):
                self.close(x, y)

    def test_retention_and_linear_attention(self):
        q, k, v, _ = tensors()
        zeros = torch.zeros(B, H, K, V, dtype=torch.float64)
        gates = (1 - 2.0 ** (-5.0 - torch.arange(H, dtype=torch.float64))).log().expand(B, T, H)
        for f in (fla.chunk_retention, fla.fused_recurrent_retention, fla.parallel_retention):
            self.close(f(q, k, v)[0], recurrence(q, k, v, gates, K ** -0.5, zeros)[0])
        for f in (fla.chunk_linear_attn, fla.fused_recurrent_linear_attn):
            self.close(f(q, k, v, normalize=False)[0], recurrence(q, k, v, 0 * gates, K ** -0.5, zeros)[0])
            k, S, Z = k.abs(), torch.rand_like(zeros), torch.rand(B, 1, H, K, dtype=torch.float64)
            rows, S_after = recurrence(q.abs(), k, v, 0 * gates, K ** -0.5, S)
            denominators = K ** -0.5 * torch.einsum("bthk,bthk->bth", q.abs(), k.cumsum(1) + Z)
            found, after = f(q.abs(), k, v, initial_state=(S, Z), output_final_state=True, normalize=True)
            self.close(found, rows / (denominators[..., None] + 1e-10))
            self.close(after[0], S_after)
            self.close(after[1], Z + k.sum(1, keepdim=True))

    def test_packed_sequences(self):
        q, k, v, g = tensors(batch=1)
        bounds = [0, 5, 5, 20, T]
        S = torch.randn(4, H, K, V, dtype=torch.float64)
        rows, states = fla.chunk_simple_gla(q, k, v, g, initial_state=S, output_final_state=True, cu_seqlens=torch.tensor(bounds))
        for n, (begin, end) in enumerate(zip(bounds, bounds[1:])):
            own = [x[:, begin:end] for x in (q, k, v, g)]
            if begin < end:
                expected = recurrence(*own, K ** -0.5, S[n:n + 1])
                self.close(rows[:, begin:end], expected[0])
                self.close(states[n:n + 1], expected[1])
            else:
                self.close(states[n], S[n])
        for wrong in ([0, 5], [1, T], [0, 9, 7, T], []):
            with self.assertRaisesRegex(sympow.InvalidArgument, "cu_seqlens is"):
                fla.chunk_simple_gla(q, k, v, g, cu_seqlens=torch.tensor(wrong))
        with self.assertRaisesRegex(sympow.InvalidArgument, "batch of one; it is one of 2"):
            fla.chunk_simple_gla(*tensors(), cu_seqlens=torch.tensor([0, T]))

    def test_forgetting_attention(self):
        for heads in (H, 2):
            q, k, v, g = tensors(heads)
            self.close(fla.parallel_forgetting_attn(q, k, v, g),
                       means(q, k, v, g, lambda s, b: (K ** -0.5 * s + b).exp()))
            near = torch.ones(T, T).tril().triu(-2).log()
            self.close(fla.parallel_forgetting_attn(q, k, v, g, window_size=3),
                       means(q, k, v, g, lambda s, b: (K ** -0.5 * s + b + near).exp()))

    def test_power_retention(self):
        for heads, deg in ((H, 2), (2, 4)):
            q, k, v, g = tensors(heads)
            expected = means(q, k, v, g, lambda s, b: (K ** -0.5 * s) ** deg * b.exp())
            for chunk in (None, 8):
                self.close(retention.power_retention(q, k, v, g, deg=deg, chunk_size=chunk), expected)
            first = [x[:, :20] for x in (q, k, v, g)]
            rows, state = retention.power_retention(*first, deg=deg, return_final_state=True)
            rest = retention.power_retention(*(x[:, 20:] for x in (q, k, v, g)), initial_state=state, deg=deg)
            self.close(torch.cat([rows, rest], 1), expected)
        with self.assertRaisesRegex(sympow.InvalidArgument, "deg is 3, must be even"):
            retention.power_retention(q, k, v, deg=3)
        with self.assertRaisesRegex(sympow.NotBuilt, "sum_of_keys"):
            retention.power_retention(q, k, v, sum_of_keys=v)

    def test_scaled_dot_product_attention(self):
        ours, theirs = sympow.torch.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention
        for heads in (H, 2):
            q, k, v, g = tensors(heads)
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            for given in (dict(is_causal=True), dict(), dict(scale=0.5)):
                self.close(ours(q, k, v, enable_gqa=heads != H, **given), theirs(q, k, v, enable_gqa=heads != H, **given))
        self.close(ours(q[0], k[0], v[0], is_causal=True, enable_gqa=True), ours(q, k, v, is_causal=True, enable_gqa=True)[0])
        with self.assertRaisesRegex(sympow.ShapeMismatch, "query: ndim is 2, must be 4"):
            ours(q[0, 0], k[0, 0], v[0, 0])
        self.close(ours(q[:, :, :5], k, v, enable_gqa=True), theirs(q[:, :, :5], k, v, enable_gqa=True))
        squares = ours(q, k, v, is_causal=True, enable_gqa=True, scores="power", power=2, log_gates=g.transpose(1, 2))
        self.close(squares.transpose(1, 2), means(*(x.transpose(1, 2) for x in (q, k, v)), g, lambda s, b: (K ** -0.5 * s) ** 2 * b.exp()))
        with self.assertRaisesRegex(sympow.ShapeMismatch, r"key: shape\[1\] is 2, must be 4"):
            ours(q, k, v)
        for given in (dict(attn_mask=q), dict(dropout_p=0.1)):
            with self.assertRaisesRegex(sympow.NotBuilt, "attn_mask must be None"):
                ours(q, k, v, enable_gqa=True, **given)


if __name__ == "__main__":
    unittest.main()
