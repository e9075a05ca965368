import { readFileSync } from 'node:fs';
import { outOfRange, wrongType } from 'internal/errors';
import { signals } from 'internal/signals';
import native from 'native/process';
import process from 'node:process';

export const EOL = '\n';
export const devNull = '/dev/null';
export const constants = {
  signals,
  errno: { ENOENT: 2, EACCES: 13, EEXIST: 17, ENOTDIR: 20, EISDIR: 21, EINVAL: 22, EPIPE: 32, ENOTEMPTY: 39 },
  priority: { PRIORITY_LOW: 19, PRIORITY_NORMAL: 0, PRIORITY_HIGH: -14 },
};

const facts = () => native.osFacts();

export const arch = () => native.arch;
export const platform = () => native.platform;
export const type = () =>
  ({ linux: 'Linux', darwin: 'Darwin', win32: 'Windows_NT' })[native.platform] ?? native.platform;
export const machine = () =>
  ({ x64: 'x86_64', arm64: native.platform === 'darwin' ? 'arm64' : 'aarch64' })[native.arch] ?? native.arch;
export const endianness = () => 'LE';
export const hostname = () => native.hostname();
export const homedir = () => process.env.HOME || native.user().homedir;
export const tmpdir = () =>
  (process.env.TMPDIR || process.env.TMP || process.env.TEMP || '/tmp').replace(/(.)\/$/, '$1');
export const release = () => facts().release;
export const version = () => facts().version;
export const uptime = () => facts().uptime;
export const loadavg = () => facts().loadavg;
export const totalmem = () => facts().totalmem;
export const freemem = () => facts().freemem;
export const availableParallelism = () => native.parallelism();
export const userInfo = () => native.user();
export const networkInterfaces = () => {
  const gathered = {};
  for (const { interface: name, ...address } of native.interfaces()) (gathered[name] ??= []).push(address);
  return gathered;
};
function processId(pid) {
  if (!Number.isInteger(pid)) throw wrongType('pid', 'of type number', pid);
  if (pid < 0 || pid > 2 ** 31 - 1) throw outOfRange('pid', '>= -2147483648 && <= 2147483647', pid);
  return pid;
}

export const getPriority = (pid = 0) => native.priority(processId(pid));
export function setPriority(pid, priority) {
  if (priority === undefined) [pid, priority] = [0, pid];
  if (!Number.isInteger(priority)) throw wrongType('priority', 'of type number', priority);
  if (priority < -20 || priority > 19) throw outOfRange('priority', '>= -20 && <= 19', priority);
  native.setPriority(processId(pid), priority);
}

/** What the kernel counted of each processor, in hundredths of seconds; nothing where it does not say. */
function processors() {
  const read = (path) => {
    try {
      return readFileSync(path, 'utf8');
    } catch {
      return '';
    }
  };
  const speeds = [...read('/proc/cpuinfo').matchAll(/^cpu MHz\s*: ([\d.]+)/gm)].map((row) =>
    Math.trunc(row[1]),
  );
  const rows = [...read('/proc/stat').matchAll(/^cpu\d+ (.*)$/gm)].map((row) =>
    row[1].split(' ').map(Number),
  );
  return { speeds, rows };
}

const times = ([user = 0, nice = 0, sys = 0, idle = 0, , irq = 0] = []) => ({
  user: user * 10,
  nice: nice * 10,
  sys: sys * 10,
  idle: idle * 10,
  irq: irq * 10,
});

export function cpus() {
  const models = facts().cpus;
  const many = models.length || native.parallelism();
  const { speeds, rows } = processors();
  return Array.from({ length: many }, (_, at) => ({
    model: models[at] ?? 'unknown',
    speed: speeds[at] ?? 0,
    times: times(rows[at]),
  }));
}

export default {
  EOL,
  arch,
  availableParallelism,
  constants,
  cpus,
  devNull,
  endianness,
  freemem,
  getPriority,
  homedir,
  hostname,
  loadavg,
  machine,
  networkInterfaces,
  platform,
  release,
  setPriority,
  tmpdir,
  totalmem,
  type,
  uptime,
  userInfo,
  version,
};
