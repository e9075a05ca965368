import { absent } from 'internal/absent';

export const Http2ServerRequest = absent('http2.Http2ServerRequest', 'use fetch');
export const Http2ServerResponse = absent('http2.Http2ServerResponse', 'use fetch');
export const connect = absent('http2.connect', 'use fetch');
export const createSecureServer = absent('http2.createSecureServer', 'use fetch');
export const createServer = absent('http2.createServer', 'use fetch');
export const getDefaultSettings = absent('http2.getDefaultSettings', 'use fetch');
export const getPackedSettings = absent('http2.getPackedSettings', 'use fetch');
export const getUnpackedSettings = absent('http2.getUnpackedSettings', 'use fetch');

export default {
  Http2ServerRequest,
  Http2ServerResponse,
  connect,
  createSecureServer,
  createServer,
  getDefaultSettings,
  getPackedSettings,
  getUnpackedSettings,
};
