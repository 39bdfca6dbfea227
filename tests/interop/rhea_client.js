// The scripts of test_rhea.py: `node rhea_client.js WHERE SCRIPT` runs one and prints its findings as JSON.
// WHERE is a port, the path of a Unix domain socket, or the URL of a WebSocket.
'use strict';

const net = require('net');

const rhea = require('rhea');

const {types} = rhea;
const UNSETTLED = 7; // the place of that field in an attach; rhea itself writes maps with keys of text

const on = (emitter, event) => new Promise((resolve) => emitter.once(event, resolve));

const opened = async (link, event) => {
  await on(link, event);
  return link;
};

const sender = (connection, address, options = {}) =>
  opened(connection.open_sender({target: {address}, ...options}), 'sendable');

// Sends one message; the outcome's name and what is said with it.
const outcome = (link, message) =>
  new Promise((resolve) => {
    const names = ['accepted', 'released', 'rejected', 'modified'];
    const told = (name) => (context) => {
      for (const each of names) link.removeAllListeners(each);
      const {error} = context.delivery.remote_state;
      resolve(error ? [name, error.condition, error.description] : [name]);
    };
    for (const name of names) link.on(name, told(name));
    link.send(message);
  });

// The next messages, each handled by `act(context, number)`, then the link is closed.
const received = (connection, options, count, act = (context) => context.delivery.accept()) =>
  new Promise((resolve, reject) => {
    const link = connection.open_receiver({credit_window: 10, autoaccept: false, ...options});
    const found = [];
    link.on('receiver_error', () => reject(link.error));
    link.on('message', async (context) => {
      found.push(context.message);
      act(context, found.length);
      if (found.length !== count) return;
      link.close();
      await on(link, 'receiver_close');
      resolve(found);
    });
  });

const text = (message) => (message.body.content || message.body).toString();

const scripts = {
  async introduction(connection) {
    const {product, version, platform} = connection.properties;
    return [product, typeof version, typeof platform];
  },

  async publish_and_consume(connection) {
    const link = await sender(connection, '/queues/q');
    let accepted = 0;
    const done = new Promise((resolve) => {
      link.on('accepted', () => {
        accepted += 1;
        if (accepted === 100) resolve();
      });
    });
    for (let number = 0; number < 100; number += 1) link.send({body: String(number)});
    await done;
    const seen = [];
    // the first is given back once, and comes again before the others
    const messages = await received(connection, {source: '/queues/q', credit_window: 1}, 101, (context, count) => {
      seen.push(context.message.first_acquirer);
      if (count === 1) context.delivery.release();
      else context.delivery.accept();
    });
    return {bodies: messages.map(text), first: seen.slice(0, 3)};
  },

  async outcomes(connection) {
    const full = await sender(connection, '/queues/full');
    const nobody = await sender(connection, '/exchanges/amq.direct/nobody');
    const anywhere = await sender(connection, undefined);
    return [
      await outcome(full, {body: 'fits'}),
      await outcome(full, {body: 'does not'}),
      await outcome(nobody, {body: 'lost'}),
      await outcome(anywhere, {to: '/queues/q', body: 'found'}),
      await outcome(anywhere, {body: 'where to?'}),
    ];
  },

  // A batch as Azure's clients send it: its body is three messages.
  async batch(connection) {
    const AZURES_BATCH = 0x80013700;
    const messages = ['a', 'b', 'c'].map((body) => rhea.message.encode({body}));
    const batch = rhea.message.encode({body: rhea.message.data_sections(messages)});
    const unsettled = await sender(connection, '/queues/q');
    const refused = new Promise((resolve) => {
      unsettled.on('rejected', ({delivery}) => {
        const {error} = delivery.remote_state;
        resolve([error.condition, error.description]);
      });
    });
    unsettled.send(batch, undefined, AZURES_BATCH);
    const first = await refused;
    const next = await outcome(unsettled, {body: 'single'});
    const settled = await sender(connection, '/queues/q', {snd_settle_mode: 1});
    settled.send(batch, undefined, AZURES_BATCH);
    await on(settled, 'sender_error');
    return [first, next, settled.error.condition];
  },

  async errors(connection) {
    const refusals = [];
    for (const open of [
      () => connection.open_sender('/queues/missing'),
      () => connection.open_receiver('/queues/missing'),
      () => connection.open_sender('/exchanges/missing/key'),
      () => connection.open_sender('/queues/not/encoded'),
    ]) {
      const link = open();
      await on(link, link.is_sender() ? 'sender_error' : 'receiver_error');
      refusals.push([link.error.condition, link.error.description]);
    }
    return refusals;
  },

  async everything(connection) {
    const sent = {
      durable: true,
      priority: 7,
      ttl: 60000,
      message_id: types.wrap_ulong(9),
      subject: 'subject',
      reply_to: '/queues/q',
      correlation_id: 'correlation',
      content_type: 'text/plain',
      group_id: 'group',
      group_sequence: 4,
      message_annotations: {'x-note': ['a', 1]},
      application_properties: {
        text: '✋',
        flag: true,
        byte: types.wrap_byte(-3),
        ushort: types.wrap_ushort(65535),
        float: types.wrap_float(0.5),
        double: 2.25,
        at: types.wrap_timestamp(1000),
        symbol: types.wrap_symbol('symbol'),
      },
      body: {list: [1, 'two', null], deep: {map: {octets: 'x'}}},
    };
    await outcome(await sender(connection, '/queues/q'), sent);
    const [got] = await received(connection, {source: '/queues/q'}, 1);
    return {
      ...Object.fromEntries(Object.keys(sent).map((name) => [name, got[name]])),
      message_id: got.message_id,
      message_annotations: got.message_annotations,
    };
  },

  async drain(connection) {
    const link = connection.open_receiver({source: '/queues/q', credit_window: 0});
    const found = [];
    link.on('message', (context) => found.push(text(context.message)));
    await on(link, 'receiver_open');
    link.drain_credit();
    link.add_credit(10);
    await on(link, 'receiver_drained');
    return {found, credit: link.credit};
  },

  async request_and_response(connection) {
    const answers = connection.open_receiver({source: {dynamic: true}});
    await on(answers, 'receiver_open');
    const {address} = answers.source;
    connection.open_receiver('/queues/questions').on('message', async ({message}) => {
      const back = await sender(connection, undefined);
      back.send({to: message.reply_to, correlation_id: message.correlation_id, body: message.body.toUpperCase()});
    });
    const answer = on(answers, 'message');
    const questions = await sender(connection, '/queues/questions');
    questions.send({reply_to: address, correlation_id: 'one', body: 'hello'});
    const {message} = await answer;
    return [address.startsWith('/queues/amq.dyn'), message.correlation_id, message.body];
  },

  async browse_and_select(connection) {
    const link = await sender(connection, '/queues/q');
    for (const colour of ['red', 'blue', 'red']) {
      await outcome(link, {body: colour, application_properties: {colour}});
    }
    const browsed = await received(connection, {source: {address: '/queues/q', distribution_mode: 'copy'}}, 3);
    const filter = rhea.filter.selector("colour = 'red'");
    const red = await received(connection, {source: {address: '/queues/q', filter}}, 2);
    const left = await received(connection, {source: '/queues/q'}, 1);
    return [browsed, red, left].map((messages) => messages.map(text));
  },

  async large_bodies(connection) {
    const link = await sender(connection, '/queues/q');
    const same = [];
    for (const size of [0, 1, 4000, 300000, 10485760]) {
      const body = Buffer.alloc(size, 'abcdefg');
      const [told] = await outcome(link, {body: rhea.message.data_section(body)});
      const [got] = await received(connection, {source: '/queues/q'}, 1);
      same.push(told === 'accepted' && Buffer.from(got.body.content).equals(body));
    }
    return same;
  },

  async presettled(connection) {
    const link = await sender(connection, '/queues/q', {snd_settle_mode: 1});
    for (let number = 0; number < 50; number += 1) link.send({body: String(number)});
    const messages = await received(connection, {source: '/queues/q', snd_settle_mode: 1}, 50, () => {});
    return messages.map(text).join();
  },

  async detach_and_come_back(connection) {
    const found = [];
    for (const body of ['first', 'second']) {
      const link = await sender(connection, '/queues/q', {name: 'same'});
      await outcome(link, {body});
      link.detach();
      await on(link, 'sender_close').catch(() => {});
      const [message] = await received(connection, {source: '/queues/q', name: 'same'}, 1);
      found.push(text(message));
    }
    return found;
  },

  async sessions(connection) {
    const sessions = [connection.create_session(), connection.create_session()];
    for (const session of sessions) session.begin();
    const told = [];
    for (const session of sessions) {
      const link = session.open_sender('/queues/q');
      await on(link, 'sendable');
      told.push(await outcome(link, {body: 'x'}));
      session.close();
      await on(session, 'session_close');
    }
    return told;
  },

  // A receiver whose connection is cut, and that comes back with a map of what it has not settled: of the messages
  // 0 to 3, 0 has not arrived, and the others are still at work. (None is accepted: rhea cannot read the transfer that
  // settles such a delivery, which has no payload.)
  async recovery(connection, again) {
    const receive = (each, unsettled) => {
      const source = {address: '/queues/q', expiry_policy: 'connection-close', timeout: 60};
      const link = each.open_receiver({name: 'worker', credit_window: 0, autoaccept: false, source});
      const tag = (hex) => types.wrap_binary(Buffer.from(hex, 'hex'));
      if (unsettled) link.local.attach.value[UNSETTLED] = types.wrap_map(unsettled, tag);
      return link;
    };
    const deliveries = (link, count) =>
      new Promise((resolve) => {
        const found = [];
        link.on('message', ({delivery, message}) => {
          found.push({delivery, tag: delivery.tag.toString('hex'), body: message.body ? text(message) : null});
          if (found.length === count) resolve(found);
        });
        link.add_credit(count);
      });
    const from = await sender(connection, '/queues/q');
    for (let number = 0; number < 5; number += 1) await outcome(from, {body: Buffer.from(String(number))});
    const before = await deliveries(receive(connection), 4);
    connection.socket.destroy();

    const next = await again();
    const link = receive(next, Object.fromEntries(before.slice(1).map(({tag}) => [tag, null])));
    const {timeout} = (await opened(link, 'receiver_open')).source;
    const after = await deliveries(link, 5);
    const told = after.map(({delivery, tag, body}) => [
      before.findIndex((each) => each.tag === tag), body, delivery.remote_settled]);
    for (const {delivery} of after) if (!delivery.remote_settled) delivery.accept();
    link.close();
    await on(link, 'receiver_close');
    next.close();
    await on(next, 'connection_close');
    return {timeout, told};
  },
};

// How rhea connects: it knows ports only, and takes a function for everything else.
const way = (where) => {
  if (where.startsWith('ws')) {
    const connect = rhea.websocket_connect(require('ws'));
    return {connection_details: connect(where, ['binary', 'AMQPWSB10', 'amqp'], {})};
  }
  if (!where.startsWith('/')) return {port: Number(where)};
  const connect = (port, host, options, opened) => net.connect({path: where}, opened);
  return {connection_details: () => ({connect})};
};

async function connected(container, where) {
  const connection = container.connect({
    ...way(where),
    hostname: 'vhost:/',
    username: 'guest',
    password: 'guest',
    reconnect: false,
  });
  await on(connection, 'connection_open');
  return connection;
}

async function main(where, name) {
  const container = rhea.create_container({id: 'scripts'});
  const connection = await connected(container, where);
  const found = await scripts[name](connection, () => connected(container, where));
  if (!connection.socket.destroyed) {
    connection.close();
    await on(connection, 'connection_close');
  }
  console.log(JSON.stringify(found));
  process.exit(0); // a connection that was cut has timers
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
