export const name = 'containers';

export function apply(host) {
  const open = new Map();
  host.registerContainers({
    available: () => true,
    make(request, events) {
      host.log(`make ${request.workspaceFolder} ${request.name}`);
      if (request.workspaceFolder === '/broken') throw new Error('no room');
      open.set(request.connection, events);
      events.output('making');
      return { id: 'c1', remoteWorkspaceFolder: '/workspaces/x', hostWorkspaceFolder: request.workspaceFolder };
    },
    write(container, connection, data) {
      const events = open.get(connection);
      if (data === 'out') events.output('a line');
      else if (data === 'close') events.closed();
      else if (data === 'throw') throw new Error('not that');
      else events.message(`${container} heard ${data}`);
    },
    stop: (container) => host.log(`stop ${container}`),
    remove: (container) => host.log(`remove ${container}`),
    disconnect: (container) => host.log(`disconnect ${container}`),
    close: () => host.log('closed'),
  });
}
