import { execa } from 'execa';
export default async () => {
  const { stdout, exitCode } = await execa('echo', ['hello', 'world']);
  const failed = await execa('sh', ['-c', 'echo no >&2; exit 3'], { reject: false });
  const piped = await execa({ input: 'text' })`cat`;
  return [stdout, exitCode, failed.exitCode, failed.stderr, piped.stdout];
};
