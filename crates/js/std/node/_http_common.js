import { absent } from 'internal/absent';
import { METHODS, isInvalidValue, isToken } from 'internal/http1/common';
import { HTTPParser } from 'internal/http1/parser';

const instead = 'create a parser with new HTTPParser()';
const common = {
  CRLF: '\r\n',
  HTTPParser,
  _checkInvalidHeaderChar: isInvalidValue,
  _checkIsHttpToken: isToken,
  calculateLenientFlags: absent('_http_common.calculateLenientFlags', instead),
  chunkExpression: /(?:^|\W)chunked(?:$|\W)/i,
  continueExpression: /(?:^|\W)100-continue(?:$|\W)/i,
  freeParser(parser, request, socket) {
    if (parser) {
      for (const name of ['kOnHeaders', 'kOnHeadersComplete', 'kOnBody', 'kOnMessageComplete'])
        parser[HTTPParser[name]] = null;
      parser.free();
    }
    if (request) request.parser = null;
    if (socket) socket.parser = null;
  },
  isLenient: () => false,
  kIncomingMessage: Symbol('IncomingMessage'),
  kSkipPendingData: Symbol('SkipPendingData'),
  methods: METHODS,
  parsers: {
    name: 'parsers',
    max: 1000,
    alloc: absent('_http_common.parsers.alloc', instead),
    free: absent('_http_common.parsers.free', instead),
  },
  prepareError: absent('_http_common.prepareError', 'read the code of the error'),
};

export const {
  CRLF,
  _checkInvalidHeaderChar,
  _checkIsHttpToken,
  calculateLenientFlags,
  chunkExpression,
  continueExpression,
  freeParser,
  isLenient,
  kIncomingMessage,
  kSkipPendingData,
  methods,
  parsers,
  prepareError,
} = common;
export { HTTPParser };
export default common;
