export const name = 'around';

const request = (number) => ({
  owner: 'inn', repo: 'stable', url: `https://example.com/${number}`, branch: 'feature', state: 'open',
  ...(number === 7 && { checks: { state: 'failed', passed: 2, failed: 1, pending: 0 } }),
});

export function apply(host, { bare }) {
  if (bare) {
    host.registerDiagnostics({});
    return;
  }
  let turns = 0;
  let reports = 0;
  host.registerWorktrees({
    repository: (directory) => (directory.startsWith('/inn') ? { root: '/inn' } : null),
    branches: (repository, typed) => ['main', 'maple', 'stable'].filter((branch) => branch.includes(typed)),
    create: (asked) => {
      host.log(`tree ${JSON.stringify(asked)}`);
      if (asked.branch === 'broken') throw new Error('no such branch');
      return { path: `/inn.worktrees/${asked.name}`, branch: `${asked.branchPrefix ?? ''}${asked.name}` };
    },
    dirty: (tree) => tree.includes('dirty'),
    remove: (tree) => host.log(`removed ${tree}`),
  });
  host.registerDirectories({
    meta: (directory) => ({
      git: { branchName: 'feature', directory, turns: turns + reports },
      project: { uri: 'file:///inn', displayName: 'The inn' },
      'ostler.owner': 'user:mallory',
    }),
    refresh: () => { turns += 1; },
    watch: async (directory, changed) => {
      if (directory !== '/inn/attic') return undefined;
      reports += 10;
      await changed();
      return () => host.log('facts of /inn/attic are watched no more');
    },
  });
  host.registerGithub({
    resource: { resource: 'https://api.github.com/repos', resource_name: 'GitHub' },
    forBranch: ({ branch, token }) => (token === 'secret' && branch === 'feature' ? request(7) : null),
    create: ({ title, branch, base }) => {
      host.log(`pull request ${title} of ${branch} into ${base ?? 'the usual'}`);
      if (title === 'refused') throw new Error('not today');
      return request(8);
    },
  });
  host.registerChanges({
    scopes: () => [{ scope: 'uncommitted', label: 'Uncommitted', changeKind: 'uncommitted', review: true }, { scope: 'session', label: 'All' }],
    state: ({ directory }, scope) => {
      if (scope === 'none') throw new Error('there is no such changeset');
      return {
        files: [{ id: 'a', edit: { after: { uri: `file://${directory}/a`, content: { uri: `file://${directory}/a` } }, diff: { added: turns, removed: 0 } } },
          { id: 'b', edit: { after: { uri: `file://${directory}/b`, content: { uri: `file://${directory}/b` } } } }],
        operations: [{ id: 'commit', label: 'Commit', scopes: ['changeset'], status: 'idle' },
          { id: 'revert', label: 'Revert', scopes: ['resource'], status: 'idle' }],
      };
    },
    summary: () => ({ files: 2, additions: turns }),
    watch: async (directory, changed) => {
      if (directory !== '/inn/yard') return null;
      host.log(`watches ${directory}`);
      turns += 10;
      await changed();
      return () => host.log(`${directory} is watched no more`);
    },
    turnStart: ({ directory }, turn) => host.log(`before ${turn} in ${directory}`),
    operate: (of, scope, operation, target, meta) => {
      host.log(`${operation} ${scope} ${target?.resource ?? 'everything'}${meta ? JSON.stringify(meta) : ''}`);
      if (operation === 'revert') throw new Error('nothing to go back to');
      return { message: 'Committed.' };
    },
  });
  host.registerDiagnostics({
    logs: async (level, told) => {
      await told({ resourceLogs: [{ level }] });
      return () => host.log(`logs of ${level} end`);
    },
    network: () => ({ hostname: 'inn' }),
    fetch: (url) => ({ url, status: 204 }),
  });
}
