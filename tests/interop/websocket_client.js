// The scripts of test_websockets.py: `node websocket_client.js URL` publishes and consumes over AMQP 0-9-1 with
// @cloudamqp/amqp-client as a browser would, and prints its findings as JSON.
'use strict';

globalThis.WebSocket = require('ws');
const {AMQPWebSocketClient} = require('@cloudamqp/amqp-client');

async function main(url) {
  const client = new AMQPWebSocketClient({url, vhost: '/', username: 'guest', password: 'guest', frameMax: 131072});
  let unclean = null;
  client.onerror = (error) => {
    unclean = error.message;
  };
  const connection = await client.connect();
  const channel = await connection.channel();
  await channel.confirmSelect();
  await channel.basicQos(50);
  const bodies = ['small', 'x'.repeat(500000), ...Array.from({length: 200}, (_, number) => String(number))];
  await Promise.all(bodies.map((body) => channel.basicPublish('', 'q', body)));
  const found = [];
  await new Promise((resolve) => {
    channel.basicConsume('q', {noAck: false}, (message) => {
      found.push(message.bodyString());
      message.ack();
      if (found.length === bodies.length) resolve();
    });
  });
  await connection.close();
  // The answer to the close of AMQP comes first, then the end of the WebSocket.
  await new Promise((resolve) => setTimeout(resolve, 100));
  console.log(JSON.stringify({same: JSON.stringify(found) === JSON.stringify(bodies), unclean}));
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
