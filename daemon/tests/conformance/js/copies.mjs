export const name = 'copies';

export function apply(host) {
  const tool = { definition: { name: 'kept', description: 'As it was.' }, effects: { reads: true }, run: () => 'as it was' };
  const schema = { type: 'string', title: 'As it was', enum: ['a'] };
  const trigger = { type: 'kept', title: 'As it was', events: [{ id: 'e', title: 'As it was' }] };
  const channel = { grant: 'x-copies:get', snapshot: () => 'as it was', describe: () => ({ title: 'As it was' }) };
  const method = {
    grant: 'x-copies:change',
    handle() {
      tool.definition.description = schema.title = trigger.title = trigger.events[0].title = 'Changed';
      tool.effects.reads = false;
      schema.enum.push('b');
      tool.run = channel.snapshot = method.handle = () => 'changed';
      channel.grant = method.grant = 'nobody:may';
      return 'it changed what it gave';
    },
  };
  host.registerTool(tool);
  host.registerSessionConfig('kept', schema);
  host.registerTriggerType(trigger);
  host.registerChannel('x-copies', channel);
  host.registerMethod('x-copies/change', method);
}
