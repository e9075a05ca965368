import { parsePhoneNumberFromString, AsYouType } from 'libphonenumber-js';
import currency from 'currency.js';
import Decimal from 'decimal.js';
import Big from 'big.js';
import { create, all } from 'mathjs';
export default async () => {
  const math = create(all, { randomSeed: 'a' });
  const p = parsePhoneNumberFromString('0151 23456789', 'DE');
  return [
    p.format('E.164'),
    p.formatInternational(),
    p.isValid(),
    new AsYouType('US').input('2133734'),
    currency(1.255).add(0.1).format(),
    currency('1,234.5', { symbol: '€', separator: '.', decimal: ',' }).format(),
    new Decimal('0.1').plus('0.2').toString(),
    Decimal.sqrt(2).toString(),
    new Decimal(2).pow(0.5).toFixed(30),
    new Big(1).div(3).toString(),
    math.evaluate('sqrt(3^2 + 4^2) + det([1,2;3,4])'),
    math.derivative('x^2 + sin(x)', 'x').toString(),
    math.unit('5 cm').to('inch').toString(),
    math.bignumber('1').div(3).toString(),
    math.simplify('2x + 3x').toString(),
    math.format(
      math.inv([
        [1, 2],
        [3, 4],
      ]),
    ),
  ];
};
