export const name = 'later';

export function apply(host) {
  const lost = host.registerChannel('X-board', { grant: 'x-later:get', snapshot: () => 'mine' });
  const kept = host.registerChannel('x-later', {
    grant: 'x-later:get', snapshot: () => 'kept', describe: () => ({}),
  });
  host.registerChannel('x-ostler', { grant: 'x-later:get', snapshot: () => 'the host' });
  host.registerMethod('x-later/publish', {
    grant: 'x-later:publish',
    handle({ lost: which }) {
      try {
        (which ? lost : kept).publish(which ? 'x-board://a' : 'x-later://a', { type: which ? 'x-board/mine' : 'x-later/kept' });
      } catch (error) {
        return error.message;
      }
    },
  });
}
