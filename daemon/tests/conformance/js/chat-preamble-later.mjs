export const name = 'chat-preamble-later';

export function apply(host) {
  host.registerChatPreamble(() => 'of a later plugin');
}
