// The scripts of test_amqplib.py: `node amqplib_client.js URL SCRIPT` runs one and prints its findings as JSON.
'use strict';

const amqplib = require('amqplib');

const next = (channel, queue, options) =>
  new Promise((resolve) => {
    const tag = `once-${queue}-${Math.random()}`;
    channel.consume(
      queue,
      (message) => channel.cancel(tag).then(() => resolve(message)),
      {...options, consumerTag: tag},
    );
  });

const failure = (channel) => new Promise((resolve) => channel.once('error', (error) => resolve(error.message)));

const scripts = {
  async publish_and_consume(connection) {
    const channel = await connection.createChannel();
    await channel.prefetch(10);
    const {queue} = await channel.assertQueue('', {exclusive: true});
    await channel.bindQueue(queue, 'amq.topic', 'a.#');
    const found = [];
    const done = new Promise((resolve) => {
      channel.consume(queue, (message) => {
        found.push([message.fields.routingKey, message.content.toString(), message.fields.redelivered]);
        // the first is sent back once, and comes again before the others
        if (found.length === 1) channel.nack(message);
        else channel.ack(message);
        if (found.length === 101) resolve();
      });
    });
    for (let number = 0; number < 100; number += 1) {
      channel.publish('amq.topic', `a.${number}`, Buffer.from(String(number)));
    }
    await done;
    const {messageCount, consumerCount} = await channel.checkQueue(queue);
    const keys = [...new Set(found.map(([key]) => key))];
    return {
      keys: keys.length,
      redelivered: found.filter(([, , again]) => again).map(([key]) => key),
      messageCount,
      consumerCount,
    };
  },

  async confirms(connection) {
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue('full', {maxLength: 2, arguments: {'x-overflow': 'reject-publish'}});
    const outcomes = await Promise.all(
      [1, 2, 3].map(
        (number) =>
          new Promise((resolve) => {
            channel.sendToQueue('full', Buffer.from(String(number)), {}, (error) => resolve(error ? 'nack' : 'ack'));
          }),
      ),
    );
    for (let number = 0; number < 1000; number += 1) channel.publish('', 'nowhere', Buffer.alloc(10));
    await channel.waitForConfirms();
    return outcomes;
  },

  async alternate_exchange(connection) {
    const channel = await connection.createConfirmChannel();
    await channel.assertExchange('lost', 'fanout', {autoDelete: true});
    await channel.assertExchange('main', 'direct', {alternateExchange: 'lost', durable: false});
    await channel.assertQueue('found', {exclusive: true});
    await channel.bindQueue('found', 'lost', '');
    const returned = [];
    channel.on('return', (message) => returned.push([message.fields.replyCode, message.fields.replyText]));
    channel.publish('main', 'nobody', Buffer.from('stray'), {mandatory: true});
    await channel.waitForConfirms();
    const message = await channel.get('found', {noAck: true});
    return {content: message.content.toString(), exchange: message.fields.exchange, returned};
  },

  async returned_messages(connection) {
    const channel = await connection.createConfirmChannel();
    const returned = [];
    channel.on('return', ({fields, properties, content}) =>
      returned.push([fields.replyCode, fields.replyText, fields.exchange, fields.routingKey, properties.messageId, content.toString()]),
    );
    channel.publish('amq.direct', 'nobody', Buffer.from('back'), {mandatory: true, messageId: 'm-1'});
    await channel.waitForConfirms();
    return returned;
  },

  async field_types(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('q', {exclusive: true});
    const headers = {
      text: 'héllo',
      yes: true,
      nothing: null,
      byte: -5,
      short: 300,
      int: 1 << 30,
      long: 2 ** 40,
      double: 0.1,
      float: {'!': 'float', value: 0.5},
      octet: {'!': 'byte', value: -7},
      int16: {'!': 'short', value: -300},
      int64: {'!': 'long', value: 7},
      signed: {'!': 'int', value: -8},
      decimal: {'!': 'decimal', value: {digits: 1234, places: 2}},
      moment: {'!': 'timestamp', value: 1700000000},
      octets: Buffer.from([0, 255]),
      list: [1, 'two', [true, {four: 4}]],
      table: {deep: {deeper: ['deepest']}},
    };
    const properties = {
      contentType: 'application/json',
      contentEncoding: 'utf-8',
      headers,
      deliveryMode: 2,
      priority: 3,
      correlationId: 'c',
      replyTo: 'r',
      expiration: '60000',
      messageId: 'm',
      timestamp: 1700000000,
      type: 't',
      userId: 'guest',
      appId: 'a',
    };
    channel.sendToQueue('q', Buffer.from('{}'), properties);
    const message = await channel.get('q', {noAck: true});
    return {sent: properties, got: message.properties};
  },

  async dead_letters(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('dead', {exclusive: true});
    await channel.assertQueue('q', {
      exclusive: true,
      deadLetterExchange: '',
      deadLetterRoutingKey: 'dead',
      messageTtl: 20,
      expires: 60000,
      maxPriority: 3,
    });
    channel.sendToQueue('q', Buffer.from('late'), {priority: 2});
    const message = await next(channel, 'dead', {noAck: true});
    const [death] = message.properties.headers['x-death'];
    return {content: message.content.toString(), reason: death.reason, queue: death.queue, count: death.count};
  },

  async cancelled(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('q');
    const told = new Promise((resolve) => channel.consume('q', resolve));
    const other = await connection.createChannel();
    await other.deleteQueue('q');
    return told;
  },

  async exchange_to_exchange(connection) {
    const channel = await connection.createChannel();
    await channel.assertExchange('outer', 'topic', {durable: false});
    await channel.assertExchange('inner', 'headers', {internal: true, durable: false});
    await channel.bindExchange('inner', 'outer', 'a.*');
    await channel.assertQueue('q', {exclusive: true});
    await channel.bindQueue('q', 'inner', '', {'x-match': 'any', colour: 'red', size: 2});
    channel.publish('outer', 'a.b', Buffer.from('red'), {headers: {colour: 'red'}});
    channel.publish('outer', 'a.b', Buffer.from('blue'), {headers: {colour: 'blue'}});
    channel.publish('outer', 'a.b', Buffer.from('two'), {headers: {size: 2}});
    await channel.unbindExchange('inner', 'outer', 'a.*');
    channel.publish('outer', 'a.b', Buffer.from('unbound'), {headers: {size: 2}});
    const {messageCount} = await channel.checkQueue('q');
    const got = [];
    for (let number = 0; number < messageCount; number += 1) {
      got.push((await channel.get('q', {noAck: true})).content.toString());
    }
    return got;
  },

  async errors(connection) {
    const messages = [];
    for (const mistake of [
      (channel) => channel.checkQueue('missing'),
      (channel) => channel.assertExchange('amq.mine', 'direct'),
      (channel) => channel.assertExchange('amq.direct', 'topic'),
    ]) {
      const channel = await connection.createChannel();
      const told = failure(channel);
      mistake(channel).catch(() => {});
      messages.push(await told);
    }
    return messages;
  },

  async large_bodies(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('q', {exclusive: true});
    const sizes = [0, 1, 131064, 131065, 3000000];
    const same = [];
    for (const size of sizes) {
      const body = Buffer.alloc(size, 'abcdefg');
      channel.sendToQueue('q', body);
      const message = await next(channel, 'q', {noAck: true});
      same.push(message.content.equals(body));
    }
    return same;
  },
};

async function main(url, name) {
  const connection = await amqplib.connect(url, {clientProperties: {connection_name: name}});
  const found = await scripts[name](connection);
  await connection.close();
  console.log(JSON.stringify(found));
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
