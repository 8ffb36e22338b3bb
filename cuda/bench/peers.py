#!/usr/bin/env python3
"""Softmax attention of PyTorch at the shapes of sympow_cuda_bench, each of its backends forced: milliseconds of the forward pass.

    peers.py [--json FILE] [--seconds S]

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
    """name, batch, heads, queries, keys, d, causal: operations are those of the pairs that are seen."""
    for t in (1024, 2048, 4096, 8192, 16384, 32768, 65536):
        yield f'd 64, T {t}', 1, 8, t, t, 64, True
    yield 'd 32, T 65536', 1, 8, 65536, 65536, 32, True
    yield 'd 128, T 65536', 1, 8, 65536, 65536, 128, True
    for keys in (2048, 8192, 32768):  # 2,112 keys are as large as a state of P 2, d 64
        yield f'd 64, decode of 64 sequences, {keys} keys', 64, 8, 1, keys, 64, False


def measure(torch, seconds):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backends = {'cudnn': SDPBackend.CUDNN_ATTENTION, 'flash': SDPBackend.FLASH_ATTENTION}
    torch.manual_seed(1)
    results = []
    n = 8192
    a, b = (torch.randn(n, n, device='cuda', dtype=torch.bfloat16) for _ in range(2))
    ms = median_ms(torch, lambda: a @ b, seconds)
    results.append({'name': f'product {n}^3, bf16', 'backend': 'cublas', 'ms': ms, 'tflops': 2 * n**3 / ms / 1e9})
    del a, b
    for name, batch, heads, queries, keys, d, causal in attention_cases():
        dtype = torch.bfloat16 if causal else torch.float16
        q = torch.randn(batch, heads, queries, d, device='cuda', dtype=dtype)
        k, v = (torch.randn(batch, heads, keys, d, device='cuda', dtype=dtype) for _ in range(2))
        for backend, which in backends.items():
            row = {'name': name, 'backend': backend}
            try:
                with sdpa_kernel(which):
                    attend = torch.nn.functional.scaled_dot_product_attention
                    ms = median_ms(torch, lambda: attend(q, k, v, is_causal=causal), seconds)
                pairs = batch * heads * (queries * (queries + 1) / 2 if causal else queries * keys)
                row.update(ms=ms, tflops=4 * pairs * d / ms / 1e9,
                           gigabytes_a_second=2 * k.numel() * k.element_size() / ms / 1e6)
            except RuntimeError as error:
                row['error'] = (str(error).strip().splitlines() or ['refused'])[0]
            results.append(row)
        del q, k, v
    return results


def show(rows):
    for r in rows:
        if 'error' in r:
            print(f'{r["name"]:48} {r["backend"]:6} {r["error"][:100]}')
        else:
            rate = f'{r["gigabytes_a_second"]:8.0f} GB/s' if 'decode' in r['name'] else f'{r["tflops"]:8.1f} TFLOP/s'
            print(f'{r["name"]:48} {r["backend"]:6} {r["ms"]:9.4f} ms {rate}')


def main():
    arguments = parse()
    report = {'results': []}
    try:
        import torch
        report.update(torch=torch.__version__)
        reason = None if torch.cuda.is_available() else 'There is no GPU here: no peer is measured.'
    except ImportError:
        reason = 'PyTorch is not installed: no peer is measured.'
    if reason:
        report['reason'] = reason
        print(reason)
    else:
        report.update(cudnn=torch.backends.cudnn.version(), device=torch.cuda.get_device_name())
        with torch.inference_mode():
            report['results'] = measure(torch, arguments.seconds)
        print(f'PyTorch {torch.__version__}, cuDNN {report["cudnn"]}')
        show(report['results'])
    if arguments.json:
        with open(arguments.json, 'w') as out:
            json.dump(report, out, indent=1)
            out.write('\n')


if __name__ == '__main__':
    sys.exit(main())
