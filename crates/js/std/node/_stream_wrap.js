import { missing } from 'internal/errors';

export default class JSStreamSocket {
  constructor() {
    throw missing('_stream_wrap.JSStreamSocket', 'use tls.connect with the option socket');
  }
}
