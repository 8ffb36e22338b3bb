"""What only a GPU can tell, in under six minutes. cuda/check_gpu.sh calls it; see there for the options.

Every step is a program with a limit of time, independent of the steps before it. After each one the report, a JSON file, is
written anew, so that a machine that is taken away leaves what was measured. The last lines compare the kernels of the
headline with their predicted times (predicted.json).
"""
import argparse
import csv
import glob
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
HEADLINE = 'P 2, d 64, T 65536'
SANITIZERS = ('memcheck', 'racecheck', 'synccheck', 'initcheck')
HEAVY = 'Update|Scan|Attention|QueryGradients|KeyGradients'
SECTIONS = ('SpeedOfLight', 'ComputeWorkloadAnalysis', 'MemoryWorkloadAnalysis', 'MemoryWorkloadAnalysis_Tables',
            'WarpStateStats', 'SchedulerStats', 'LaunchStats', 'Occupancy')
COUNTERS = {  # of Nsight Compute, of each heavy kernel
    'nanoseconds': 'gpu__time_duration.sum',
    'cycles': 'sm__cycles_active.avg',
    'instructions_a_cycle': 'sm__inst_executed.avg.per_cycle_active',
    'tensor_percent': 'sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active',
    'dram_read': 'dram__bytes_read.sum',
    'dram_written': 'dram__bytes_write.sum',
    'l2_sectors': 'lts__t_sectors.sum',
    'l2_percent': 'lts__throughput.avg.pct_of_peak_sustained_elapsed',
    'shared_percent': 'l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed',
    'shared_wavefronts': 'l1tex__data_pipe_lsu_wavefronts_mem_shared.sum',
    'bank_conflicts': 'l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum',
    'registers': 'launch__registers_per_thread',
}
STALLS = re.compile(r'smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio$')


def parse():
    parser = argparse.ArgumentParser(prog='check_gpu.sh', description=__doc__.splitlines()[0])
    parser.add_argument('--json', help='the report; default check_gpu.json in $OUT, or else in build')
    parser.add_argument('--prebuilt', metavar='PATH', help='a folder or an archive of ./dev gpu-bundle; without it programs are built')
    parser.add_argument('--build', metavar='FOLDER', default='build/check_gpu', help='where they are built')
    parser.add_argument('--only', metavar='STEP', action='append', help='run these steps alone')
    parser.add_argument('--skip', metavar='STEP', action='append', default=[], help='leave these steps out')
    parser.add_argument('--small', action='store_true', help='short sequences and one call a case, for an interpreter')
    parser.add_argument('-D', dest='defines', action='append', default=[], metavar='NAME=VALUE', help='for CMake')
    return parser.parse_args()


def text_of(*command):
    """What a command prints, or '' where it fails or does not exist."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ''


def counters_of(output):
    """The counters of each kernel, and what its warps wait for most, from the CSV that Nsight Compute prints."""
    table = csv.DictReader(io.StringIO('\n'.join(line for line in output.splitlines() if line.startswith('"'))))
    next(table, None)  # the units
    kernels = []
    for row in table:
        number = {metric: float(value.replace(',', '')) for metric, value in row.items()
                  if re.fullmatch(r'[\d,]+(\.\d+)?', value or '')}
        kept = {'kernel': re.sub(r'sympow::cuda::|block::|void |entry|\(.*', '', row['Kernel Name'])}
        kept.update((name, number[metric]) for name, metric in COUNTERS.items() if metric in number)
        stalls = {match[1]: number[match[0]] for match in map(STALLS.match, number) if match}
        kept['stalls'] = dict(sorted(stalls.items(), key=lambda item: -item[1])[:6])
        kernels.append(kept)
    return kernels


def text_of_report(report):
    """JSON in which an object without others inside is one line."""
    text = json.dumps(report, indent=1, ensure_ascii=False)
    return re.sub(r'\{[^{}\[\]]*\}', lambda found: re.sub(r'\n *', ' ', found[0]), text)


class Skip(Exception):
    """A step cannot run here; the message says why."""


class Check:
    def __init__(self, options):
        self.options = options
        self.begin = time.monotonic()
        self.folder = os.path.abspath(options.prebuilt or options.build)
        self.json = os.path.abspath(options.json or os.path.join(os.environ.get('OUT', 'build'), 'check_gpu.json'))
        os.makedirs(os.path.dirname(self.json), exist_ok=True)
        self.log = open(os.path.splitext(self.json)[0] + '.log', 'w', encoding='utf-8')
        if os.path.isfile(self.folder):
            with tarfile.open(self.folder) as archive:
                self.folder = tempfile.mkdtemp()
                archive.extractall(self.folder, filter='data')
        stamp = os.path.join(self.folder, 'stamp.json')
        self.report = {'device': {}, 'stamp': {}, 'steps': [], 'tests': {}, 'benchmarks': {}, 'counters': [],
                       'peers': None, 'clocks': ''}
        if os.path.exists(stamp):
            with open(stamp, encoding='utf-8') as file:
                self.report['stamp'] = json.load(file)
        else:
            self.report['stamp'] = {'commit': text_of('git', 'rev-parse', '--short', 'HEAD')}
        with open(os.path.join(HERE, 'predicted.json'), encoding='utf-8') as file:
            self.predicted = json.load(file)

    # ---- running steps ----

    def write(self):
        self.report['seconds'] = round(time.monotonic() - self.begin, 1)
        with open(self.json + '.new', 'w', encoding='utf-8') as file:
            file.write(text_of_report(self.report) + '\n')
        os.replace(self.json + '.new', self.json)

    def step(self, name, work):
        if (self.options.only and name not in self.options.only) or name in self.options.skip:
            return
        begin = time.monotonic()
        entry = {'name': name}
        try:
            result = work()
            entry['status'] = result if result is not None else 'passed'
        except Skip as reason:
            entry['status'] = f'skipped: {reason}'
        except Exception as error:  # pylint: disable=broad-except
            entry['status'] = f'FAILED: {error!r}'  # the steps behind it still run
        entry['seconds'] = round(time.monotonic() - begin, 1)
        self.report['steps'].append(entry)
        print(f'{name:12} {entry["seconds"]:6.1f} s  {entry["status"]}', flush=True)
        self.write()

    def start(self, *command, **more):
        """A program of its own process group, its output in a pipe."""
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace',
                                cwd=ROOT, start_new_session=True, **more)

    def finish(self, process, limit):
        """Its status and output; past the limit, which an interpreter has ten times, it is ended, and what it printed counts."""
        try:
            seconds = max(limit, 1) * (10 if self.options.small else 1)
            output, status = process.communicate(timeout=seconds)[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, status = process.communicate()[0], 'out of time'
        self.log.write(f'\n==== {" ".join(process.args)}\n{output}')
        self.log.flush()
        return status, output

    def run(self, limit, *command, **more):
        return self.finish(self.start(*command, **more), limit)

    def program(self, name):
        found = [file for file in glob.glob(os.path.join(self.folder, '**', name), recursive=True) if os.path.isfile(file)]
        if not found:
            raise FileNotFoundError(f'{name} was not built')
        return found[0]

    @staticmethod
    def verdict(status):
        return None if status == 0 else f'FAILED: {status if isinstance(status, str) else f"status {status}"}'

    @staticmethod
    def tool(name):
        path = shutil.which(name) or shutil.which(name, path='/usr/local/cuda/bin')
        if not path:
            raise Skip(f'{name} is not here')
        return path

    # ---- steps ----

    def device(self):
        fields = 'name,driver_version,compute_cap,clocks.max.sm,clocks.max.mem,power.limit,clocks.sm,temperature.gpu'
        values = text_of(self.tool('nvidia-smi'), f'--query-gpu={fields}', '--format=csv,noheader').splitlines()
        if not values:
            raise Skip('nvidia-smi shows no GPU')
        self.report['device'] = dict(zip(fields.split(','), values[0].split(', ')))
        return values[0]

    def build(self):
        capability = self.report['device'].get('compute_cap', '9.0').replace('.', '')
        architecture = {'90': '90a'}.get(capability, capability) + '-real'  # products of four warps
        ninja = ['-G', 'Ninja'] if shutil.which('ninja') else []
        status, _ = self.run(600, 'cmake', '-S', 'cuda/check', '-B', self.folder, *ninja, '-D', 'CMAKE_BUILD_TYPE=Release',
                             '-D', f'CMAKE_CUDA_ARCHITECTURES={architecture}',
                             *[word for define in self.options.defines for word in ('-D', define)])
        if status == 0:
            status, _ = self.run(900, 'cmake', '--build', self.folder, '-j', str(os.cpu_count()))
        return self.verdict(status)

    def test(self, limit, *arguments):
        """Runs parts of device_test; keeps the worst case of each kind and what failed."""
        status, output = self.run(limit, self.program('device_test'), *arguments)
        cases = re.findall(r'^  (.*\S) +([\d.]+) of the (rule|bound)', output, re.M)
        worst = max(cases, key=lambda case: float(case[1]), default=('', '0', ''))
        self.report['tests'][' '.join(arguments)] = {
            'cases': len(cases), 'worst': float(worst[1]), 'of': worst[0],
            'failed': re.findall(r'^  FAILED: (.*)', output, re.M)[:20], 'parts': re.findall(r'^\w+: [\d.]+ s$', output, re.M)}
        if not cases:
            return 'FAILED: no case ran'
        return self.verdict(status) or f'passed, {len(cases)} cases, worst {worst[1]} of its bound ({worst[0]})'

    def bench(self, limit, *arguments):
        file = os.path.join(os.path.dirname(self.json), 'bench.json')
        if os.path.exists(file):
            os.remove(file)
        small = ['--tokens', '128', '--once'] if self.options.small else []
        limit = min(limit, 10) if small else limit
        status, output = self.run(limit + 20, self.program('sympow_cuda_bench'), '--limit', str(limit), '--json', file,
                                  *small, *arguments)
        if os.path.exists(file):
            with open(file, encoding='utf-8') as text:
                self.report['benchmarks'][' '.join(arguments)] = json.load(text)
        elif status == 0:
            status = 'nothing was measured'
        print('\n'.join(line for line in output.splitlines() if 'SHORT' in line or 'holds' in line))
        return self.verdict(status)

    def sanitizers(self):
        """The four tools beside each other: each waits for one core and leaves most of the GPU alone."""
        tool = self.tool('compute-sanitizer')
        if not self.report['device']:
            raise Skip('no GPU')
        test = self.program('device_test')
        cases = (f'"{test}" gradients losses_of_states && "{test}" --only "P 2, d 64" rows more_gradients && '
                 f'"{test}" --only "architecture, d 16" architectures rows_of_architectures')
        without = {'racecheck': ['--kernel-name-exclude', 'kernel_substring=hopper']}  # it knows no mbarriers
        running = {name: self.start(tool, '--tool', name, *without.get(name, []), '--target-processes', 'all', '--error-exitcode', '9', '--print-limit',
                                    '20', 'sh', '-c', cases) for name in SANITIZERS}
        end, said = time.monotonic() + 100, []
        for name, process in running.items():
            status, output = self.finish(process, end - time.monotonic())
            errors = re.findall(r'(?:ERROR|RACECHECK) SUMMARY: (.*)', output)
            said.append(f'{name} {status} ({"; ".join(errors) or "no summary"})')
        self.report['sanitizers'] = said
        return ('' if all(' 0 (' in line for line in said) else 'FAILED: ') + ', '.join(said)

    def counters(self):
        """Hardware counters of the heavy kernels in one call, forward and backward."""
        tool = self.tool('ncu')
        if not self.report['device']:
            raise Skip('no GPU')
        status, output = self.run(60, tool, '--csv', '--page', 'raw', '--print-units', 'base', '--clock-control', 'none',
                                  '--kernel-name-base', 'demangled',
                                  '-k', f'regex:({HEAVY})<', *[word for s in SECTIONS for word in ('--section', s)],
                                  self.program('sympow_cuda_bench'), '--once', '--order', 'training', '--only', f'{HEADLINE}, f')
        kernels = self.report['counters'] = counters_of(output)
        return self.verdict(status) or f'passed, {len(kernels)} kernels'

    def peers(self):
        if not self.report['device']:
            raise Skip('no GPU')
        file = os.path.join(os.path.dirname(self.json), 'peers.json')
        status, output = self.run(170, sys.executable, 'cuda/bench/peers.py', '--json', file, '--limit', '120')
        if os.path.exists(file):
            with open(file, encoding='utf-8') as text:
                self.report['peers'] = json.load(text)
        print('\n'.join(output.splitlines()[-30:]))
        return self.verdict(status)

    # ---- the end ----

    def table(self):
        """Twelve lines: cases, and the heavier kernels of the last one, beside predictions and counters."""
        cases = {case['name']: case for benchmark in self.report['benchmarks'].values() for case in benchmark.get('cases', [])}
        counters = {kernel['kernel'].strip('<').split('<')[0]: kernel for kernel in self.report['counters']}
        print(f'\n{"":42} {"ms":>8} {"predicted":>9} {"ratio":>6} {"tensor":>7} {"instructions a cycle":>20}')
        rows, kernels = [], {}
        for name, predicted in self.predicted.items():
            case = cases.get(name, {'error': 'not measured'})
            if 'error' in case:
                print(f'{name}: {case["error"]}')
                continue
            rows.append((name, case['ms'], predicted['all']))
            kernels = {}
            for part in case['parts']:
                kernel = part['kernel'].split('<')[0].split('(')[0]
                kernels[kernel] = kernels.get(kernel, 0) + part['ms']
        heaviest = sorted(kernels.items(), key=lambda kernel: -kernel[1])[:8]
        rows += [('  ' + kernel, ms, predicted.get(kernel)) for kernel, ms in heaviest]
        for name, ms, expected in rows:
            known = f'{expected:9.3f} {ms / expected:6.2f}' if expected else ' ' * 16
            of = counters.get(name.strip())
            print(f'{name:42} {ms:8.4f} {known}'
                  + (f' {of.get("tensor_percent", 0):5.1f} % {of.get("instructions_a_cycle", 0):20.2f}' if of else ''))

    def all(self):
        self.step('device', self.device)
        if not self.report['device'] and not self.options.small:
            print('There is no GPU here: nothing is checked.')
            return 0
        clocks = None
        if self.report['device']:
            clocks = self.start(self.tool('nvidia-smi'), 'dmon', '-s', 'puc', '-d', '2')
        if not self.options.prebuilt:
            self.step('build', self.build)
        one = ['--only', 'P 2, d 16'] if self.options.small else []
        self.step('gradients', lambda: self.test(60, *one, 'gradients', 'losses_of_states'))
        if not self.options.small:
            self.step('gradients 2', lambda: self.test(90, 'more_gradients', 'architectures', 'rows_of_architectures'))
        self.step('training', lambda: self.bench(40, '--order', 'ceilings,training,attention', '--quick'))
        self.step('rows', lambda: self.test(60, *one, 'refusals', 'rows', 'states', 'decoding', 'slots', 'streams'))
        self.step('sanitizers', self.sanitizers)
        self.step('counters', self.counters)
        self.step('peers', self.peers)
        self.step('cases', lambda: self.bench(60, '--order', 'ceilings,training,decoding,attention'))
        if clocks:
            os.killpg(clocks.pid, signal.SIGKILL)
            self.report['clocks'] = clocks.communicate()[0]
        self.write()
        self.table()
        failed = [step['name'] for step in self.report['steps'] if step['status'].startswith('FAILED')]
        print(f'{self.report["seconds"]:.0f} s, {self.json}' + (f', failed: {", ".join(failed)}' if failed else ''))
        return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(Check(parse()).all())
