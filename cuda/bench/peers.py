#!/usr/bin/env python3
"""Peers at the shapes of sympow_cuda_bench: milliseconds of the forward pass, and of forward and backward.

Softmax attention of PyTorch, each of its backends forced; gated linear attention of flash-linear-attention (P 1) and power
attention of retention (P 2), where these packages can be imported.

    peers.py [--json FILE] [--seconds S] [--limit L]

Without PyTorch or a GPU it says so and ends with status 0. A backend that refuses a shape is listed with its reason.
"""
import argparse
import json
import statistics
import sys
import time


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--json', help='what was measured, as JSON')
    parser.add_argument('--seconds', type=float, default=.2, help='of each case')
    parser.add_argument('--limit', type=float, default=1e9, help='seconds after which no case begins')
    return parser.parse_args()


def median_ms(torch, call, seconds):
    """Median milliseconds between events on a stream that is never empty."""
    call()
    torch.cuda.synchronize()
    begin, warm = time.perf_counter(), 0
    while warm < 3 or time.perf_counter() - begin < seconds / 4:
        call()
        warm += 1
        torch.cuda.synchronize()
    each = (time.perf_counter() - begin) / warm
    calls = max(7, min(200, int(seconds * .75 / each)))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:]))


def attention_cases():
    """name, batch, heads, queries, keys, d, causal, with gradients: operations are those of the pairs that are seen."""
    for t in (8192, 65536):
        yield f'd 64, T {t}', 1, 8, t, t, 64, True, True
    for t in (1024, 2048, 4096, 8192, 16384, 32768, 65536):
        yield f'd 64, T {t}', 1, 8, t, t, 64, True, False
    yield 'd 32, T 65536', 1, 8, 65536, 65536, 32, True, False
    yield 'd 128, T 65536', 1, 8, 65536, 65536, 128, True, False
    for keys in (2048, 8192, 32768):  # 2,112 keys are as large as a state of P 2, d 64
        yield f'd 64, decode of 64 sequences, {keys} keys', 64, 8, 1, keys, 64, False, False


def forward_and_backward(call, inputs):
    """A call that also makes the gradients of all inputs, from gradients of rows that are there before."""
    for x in inputs:
        x.requires_grad_()
    rows = call()
    d_rows = rows.detach().clone()

    def both():
        call().backward(d_rows)
        for x in inputs:
            x.grad = None
    return both


def linear_peers():
    """name, call(q, k, v, log_gates) of arrays [B, T, H, D], or the reason why it is not here."""
    try:
        from fla.ops.simple_gla import chunk_simple_gla
        yield 'fla, simple_gla (P 1)', lambda q, k, v, g: chunk_simple_gla(q, k, v, g=g)[0]
    except Exception as error:  # pylint: disable=broad-except
        yield 'fla', repr(error)[:200]
    try:
        from retention import power_retention
        yield 'retention (P 2), chunk 1024', lambda q, k, v, g: power_retention(Q=q, K=k, V=v, log_G=g, deg=2, chunk_size=1024)
    except Exception as error:  # pylint: disable=broad-except
        yield 'retention', repr(error)[:200]


def measured(torch, row, call, inputs, gradients, seconds):
    """The row with the time of a call, or with why there is none."""
    try:
        row['ms'] = median_ms(torch, forward_and_backward(call, inputs) if gradients else call, seconds)
    except Exception as error:  # pylint: disable=broad-except
        row['error'] = (str(error).strip().splitlines() or ['refused'])[0]
    for x in inputs:
        x.requires_grad_(False)
    return row


def measure(torch, seconds, limit, keep):
    """Calls keep(row) for every case."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backends = {'cudnn': SDPBackend.CUDNN_ATTENTION, 'flash': SDPBackend.FLASH_ATTENTION}
    begin = time.perf_counter()
    torch.manual_seed(1)
    n = 8192
    a, b = (torch.randn(n, n, device='cuda', dtype=torch.bfloat16) for _ in range(2))
    ms = median_ms(torch, lambda: a @ b, seconds)
    keep({'name': f'product {n}^3, bf16', 'backend': 'cublas', 'ms': ms, 'tflops': 2 * n**3 / ms / 1e9})
    del a, b
    for name, batch, heads, queries, keys, d, causal, gradients in attention_cases():
        dtype = torch.bfloat16 if causal else torch.float16
        q = torch.randn(batch, heads, queries, d, device='cuda', dtype=dtype)
        k, v = (torch.randn(batch, heads, keys, d, device='cuda', dtype=dtype) for _ in range(2))
        for backend, which in backends.items():
            if time.perf_counter() - begin > limit / 2:
                continue
            row = {'name': name + (', forward and backward' if gradients else ''), 'backend': backend}
            attend = torch.nn.functional.scaled_dot_product_attention
            with sdpa_kernel(which):
                measured(torch, row, lambda: attend(q, k, v, is_causal=causal), (q, k, v), gradients, seconds)
            if 'ms' in row:
                pairs = batch * heads * (queries * (queries + 1) / 2 if causal else queries * keys)
                row.update(tflops=(14 if gradients else 4) * pairs * d / row['ms'] / 1e9,
                           gigabytes_a_second=2 * k.numel() * k.element_size() / row['ms'] / 1e6)
            keep(row)
        del q, k, v
    for name, call in linear_peers():
        if isinstance(call, str):
            keep({'name': name, 'backend': name, 'error': call})
            continue
        for t in (65536, 8192):
            q, k, v = (torch.randn(1, t, 8, 64, device='cuda', dtype=torch.bfloat16).div_(8) for _ in range(3))
            gates = -1e-3 * torch.randn(1, t, 8, device='cuda') ** 2
            for gradients in (False, True):
                if time.perf_counter() - begin > limit:
                    continue
                row = {'name': f'd 64, T {t}' + (', forward and backward' if gradients else ''), 'backend': name}
                keep(measured(torch, row, lambda: call(q, k, v, gates), (q, k, v, gates), gradients, seconds))


def show(r):
    rate = ''
    if 'gigabytes_a_second' in r:
        rate = f'{r["gigabytes_a_second"]:8.0f} GB/s' if 'decode' in r['name'] else f'{r["tflops"]:8.1f} TFLOP/s'
    said = r['error'][:100] if 'error' in r else f'{r["ms"]:9.4f} ms {rate}'
    print(f'{r["name"]:48} {r["backend"]:28} {said}', flush=True)


def main():
    arguments = parse()
    report = {'results': []}

    def write():
        if arguments.json:
            with open(arguments.json, 'w') as out:
                json.dump(report, out, indent=1)
                out.write('\n')

    def keep(row):
        report['results'].append(row)
        show(row)
        write()  # a run that is cut off leaves the cases before

    try:
        import torch
        report.update(torch=torch.__version__)
        reason = None if torch.cuda.is_available() else 'There is no GPU here: no peer is measured.'
    except ImportError:
        reason = 'PyTorch is not installed: no peer is measured.'
    if reason:
        report['reason'] = reason
        print(reason)
        write()
        return
    report.update(cudnn=torch.backends.cudnn.version(), device=torch.cuda.get_device_name())
    print(f'PyTorch {torch.__version__}, cuDNN {report["cudnn"]}')
    measure(torch, arguments.seconds, arguments.limit, keep)


if __name__ == '__main__':
    sys.exit(main())
