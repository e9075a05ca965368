import { missing } from 'internal/errors';

export default function JSStreamSocket() {
  throw missing('_stream_wrap.JSStreamSocket', 'use tls.connect with the option socket');
}
