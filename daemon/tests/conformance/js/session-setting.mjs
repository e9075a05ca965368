export const name = 'session-setting';

const branches = ['main', 'oats', 'hay'];

export function apply(host) {
  host.registerSessionConfig('mood', {
    type: 'string', title: 'Mood', enum: ['calm', 'wild'], default: 'calm', sessionMutable: true,
  });
  host.registerSessionConfig('branch', { description: 'Where to work.' }, (asked) => {
    host.log(JSON.stringify(asked));
    return branches
      .filter((branch) => branch.includes(asked.query))
      .map((branch) => ({ value: branch, label: `The ${branch}`, description: branch === 'main' ? 'As it is.' : undefined }));
  });
  host.registerSessionConfig('own', { enum: ['a'], enumLabels: ['A'] }, ({ query }) => [{ value: query, label: `?${query}` }]);
  host.registerSessionConfig('angry', { type: 'string' }, () => {
    throw new Error('no luck today');
  });
  host.registerSessionConfig('wrong', { type: 'string' }, () => [{ value: 1 }]);
  const attempt = (key, ...rest) => {
    try {
      host.registerSessionConfig(key, ...rest);
      host.log('taken');
    } catch (error) {
      host.log(error.message);
    }
  };
  attempt('', {});
  attempt('MOOD', {});
  attempt('odd', { title: 5 });
  attempt('odd', { type: 'mood' });
  attempt('provider', {});
}
