import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { Module, Controller, Get, Injectable } from '@nestjs/common';
export default async () => {
  class S {
    hi() {
      return 'hi';
    }
  }
  Injectable()(S);
  class C {
    constructor(s) {
      this.s = s;
    }
    get() {
      return { v: this.s.hi() };
    }
  }
  Reflect.defineMetadata('design:paramtypes', [S], C);
  Controller('x')(C);
  Get()(C.prototype, 'get', Object.getOwnPropertyDescriptor(C.prototype, 'get'));
  class M {}
  Module({ controllers: [C], providers: [S] })(M);
  const app = await NestFactory.create(M, { logger: false });
  await app.listen(0, '127.0.0.1');
  const r = await (await fetch(`${await app.getUrl()}/x`)).json();
  await app.close();
  return r;
};
