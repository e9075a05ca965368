// One HTTP/1 connection's bytes, as parts of messages.

import native from 'native/http1';
import { IncomingMessage } from 'internal/http1/incoming';

export const maxHeaderSize = 16 << 10;

/** `messages`: 'requests' or 'responses'. */
export const parser = (messages, longestHead) => native.parser(messages === 'requests', longestHead);

/** A message from its head. */
export function message(Class, socket, [, minor, method, target, status, reason, pairs]) {
  const made = new (Class ?? IncomingMessage)(socket);
  made.httpVersionMajor = 1;
  made.httpVersionMinor = minor;
  made.httpVersion = `1.${minor}`;
  made.rawHeaders = pairs;
  if (method) {
    made.method = method;
    made.url = target;
  } else {
    made.statusCode = status;
    made.statusMessage = reason;
  }
  return made;
}

/** Whether the connection lasts after the message, by its version and its headers. */
export function lasts(made) {
  const words = `${made.headers.connection ?? ''}`.toLowerCase();
  if (/(?:^|[\s,])close(?:$|[\s,])/.test(words)) return false;
  return made.httpVersionMinor >= 1 || /keep-alive/.test(words);
}

/** Whether the other side wants another protocol. */
export const upgrades = (made) =>
  made.headers.upgrade !== undefined && /(?:^|[\s,])upgrade(?:$|[\s,])/i.test(made.headers.connection ?? '');
