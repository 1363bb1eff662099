import { WebSocket } from "ws"; // in a browser it is there already

export function connect(url, client) {
  client.socket = new WebSocket(`${url}/v1/ws`);
  client.send = (command) => client.socket.send(JSON.stringify({ session_id: client.session, ...command }));
  let group = [];
  client.socket.onmessage = ({ data }) => {
    const frame = JSON.parse(data);
    if (frame.type === "connected" && client.session) client.send({ type: "subscribe", last_event_id: client.last });
    if (frame.type === "accepted") client.session = frame.session_id;
    group.push(frame);
    if (!frame.event_id) return; // the frames of one event count once the last of them is here
    group.forEach(client.handleEvent);
    [group, client.last] = [[], frame.event_id];
  };
  client.socket.onerror = () => {}; // what follows is the close
  client.socket.onclose = () => setTimeout(connect, 1000, url, client);
}
