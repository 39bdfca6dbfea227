// The scripts of test_mqtt_js.py: `node mqtt_client.js URL SCRIPT` prints what the script found as JSON.
'use strict';

const mqtt = require('mqtt');

const connect = (url, options) =>
  mqtt.connectAsync(url, {username: 'guest', password: 'guest', reconnectPeriod: 0, ...options});

// The next `count` messages of a client.
function messages(client, count) {
  return new Promise((resolve) => {
    const found = [];
    client.on('message', (topic, payload, packet) => {
      found.push({topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain, properties: packet.properties});
      if (found.length === count) resolve(found);
    });
  });
}

const SCRIPTS = {
  async publish_and_subscribe(url, options) {
    const [reader, writer] = [await connect(url, options), await connect(url, options)];
    await reader.subscribeAsync('a/#', {qos: 2});
    const found = messages(reader, 300);
    for (let number = 0; number < 300; number += 1) {
      await writer.publishAsync(`a/${number % 3}`, String(number), {qos: number % 3});
    }
    const payloads = (await found).map((message) => [Number(message.payload), message.qos]);
    await Promise.all([reader.endAsync(), writer.endAsync()]);
    return payloads.sort((one, other) => one[0] - other[0]).every(([number, qos], at) => number === at && qos === at % 3);
  },

  async large(url, options) {
    const client = await connect(url, options);
    await client.subscribeAsync('large', {qos: 1});
    const found = messages(client, 1);
    const payload = 'x'.repeat(3000000);
    await client.publishAsync('large', payload, {qos: 1});
    const same = (await found)[0].payload === payload;
    await client.endAsync();
    return same;
  },

  async properties(url) {
    const client = await connect(url, {protocolVersion: 5});
    await client.subscribeAsync('a', {qos: 1, properties: {subscriptionIdentifier: 7}});
    const found = messages(client, 1);
    const properties = {
      contentType: 'text/plain', responseTopic: 'answers', correlationData: Buffer.from('7'), userProperties: {a: ['1', '2']},
      payloadFormatIndicator: true,
    };
    await client.publishAsync('a', 'x', {qos: 1, properties});
    const [message] = await found;
    await client.endAsync();
    const seen = message.properties;
    return [seen.contentType, seen.responseTopic, String(seen.correlationData), seen.userProperties, seen.subscriptionIdentifier];
  },

  async session(url, options) {
    const kept = {...options, clientId: 'me', clean: false, properties: {sessionExpiryInterval: 100}};
    const first = await connect(url, kept);
    await first.subscribeAsync('a', {qos: 1});
    await first.endAsync();
    const writer = await connect(url, options);
    await writer.publishAsync('a', 'meanwhile', {qos: 1});
    await writer.endAsync();
    const again = mqtt.connect(url, {username: 'guest', password: 'guest', reconnectPeriod: 0, ...kept});
    const found = messages(again, 1);
    const present = await new Promise((resolve) => again.on('connect', (packet) => resolve(packet.sessionPresent)));
    const [message] = await found;
    await again.endAsync();
    return [present, message.payload];
  },

  async wrong_password(url, options) {
    try {
      await connect(url, {...options, password: 'wrong'});
    } catch (error) {
      return error.code;
    }
    return null;
  },
};

async function main(url, script, version) {
  console.log(JSON.stringify(await SCRIPTS[script](url, {protocolVersion: Number(version)})));
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
