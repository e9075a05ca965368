// Plugins with their state, memory, CPU time and problems.

import { api, reader, samples } from '../api.js';
import { action, facts, h, head, keyed, tag, write } from '../dom.js';
import { bytes, duration } from '../format.js';

const KINDS = { ready: 'good', disabled: 'quiet', pending: 'wait' };

function make(plugin, app, load) {
  const button = action(plugin.enabled ? 'Disable' : 'Enable', async () => {
    await api(`plugin/${plugin.enabled ? 'disable' : 'enable'}`, { name: plugin.name });
    await load();
  });
  button.id = `toggle-${plugin.name}`;
  button.setAttribute('aria-label', `${plugin.enabled ? 'Disable' : 'Enable'} ${plugin.name}`);
  const options = Object.keys(plugin.options ?? {}).length ? JSON.stringify(plugin.options, null, 2) : '';
  const used = h('div');
  const element = h(
    'section',
    { class: 'card' },
    h(
      'div',
      { class: 'row' },
      h('h2', { class: 'grow' }, plugin.title ?? plugin.name),
      tag(plugin.state, KINDS[plugin.state] ?? 'bad'),
      app.me?.user || !app.me?.signIn ? '' : button,
    ),
    plugin.problem ? h('p', { class: 'bad' }, plugin.problem) : '',
    facts([
      ['Name', plugin.name],
      ['Grants', plugin.grants?.join(', ')],
      ['From', plugin.path],
    ]),
    used,
    options ? h('details', {}, h('summary', {}, 'Options'), h('pre', { tabindex: '0' }, options)) : '',
  );
  return Object.assign(element, { used });
}

export function show(main, app) {
  const list = h('div');
  const state = h('p', { class: 'quiet', role: 'status' }, 'Loading plugins');
  main.append(head('Plugins'), state, list);
  const load = reader(async () => {
    try {
      const [plugins, metrics, status] = await Promise.all([
        api('plugin/list'),
        api('metrics').then(samples, () => new Map()),
        api('status').catch(() => ({})),
      ]);
      const of = (name, plugin) =>
        metrics.get(name)?.find(({ labels }) => [plugin.id, plugin.name].includes(labels.plugin))?.value;
      const slow = (plugin) => {
        const calls = (metrics.get('ostler_plugin_call_duration_seconds_count') ?? []).filter(
          ({ labels }) => labels.plugin === plugin.id,
        );
        const failed = calls
          .filter(({ labels }) => labels.outcome !== 'ok')
          .reduce((sum, one) => sum + one.value, 0);
        const all = calls.reduce((sum, one) => sum + one.value, 0);
        return all ? `${all}, ${failed} failed` : '';
      };
      const problems = plugins.filter((plugin) => plugin.problem).length;
      write(state, `${plugins.length} plugins, ${problems} with a problem`);
      const agents = status.agents ?? [];
      const focused = document.activeElement?.id;
      keyed(
        list,
        plugins,
        // A plugin that has changed is another element; what it uses is written into the one there is.
        JSON.stringify,
        (plugin) => make(plugin, app, load),
        (element, plugin) => {
          const memory = of('ostler_plugin_memory_bytes', plugin);
          const cpu = of('ostler_plugin_cpu_seconds_total', plugin);
          element.used.replaceChildren(
            facts([
              ['Memory', memory == null ? (plugin.bundled ? 'part of the daemon' : '') : bytes(memory)],
              ['CPU time', cpu == null ? '' : duration(cpu * 1000)],
              ['Calls', slow(plugin)],
              [
                'Processes',
                plugin.id === 'acp' && agents.length
                  ? agents
                      .map((one) => `${one.provider}: ${one.processes}, ${bytes(one.memoryBytes)}`)
                      .join('; ')
                  : '',
              ],
            ]),
          );
        },
      );
      if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
    } catch (error) {
      write(state, error.message);
    }
  });
  load();
  return app.onTopic(['plugins'], load);
}
