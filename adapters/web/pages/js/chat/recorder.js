// Recording a voice message: loaded when the microphone is first asked for.

import { html, t, useEffect, useRef, useState } from "../lib.js";
import { Button } from "../ui.js";

const TYPES = ["audio/webm;codecs=opus", "audio/mp4", "audio/ogg;codecs=opus"];
const BITS = 32_000; // a second: speech
const LONGEST = 10 * 60; // seconds; then the recording ends by itself and nothing of it is lost
const NAMES = { "audio/webm": "webm", "audio/mp4": "m4a", "audio/ogg": "ogg" };

/** Return why there is no recording, in words. */
function explain(error) {
  if (!navigator.mediaDevices || !window.MediaRecorder) return t("This browser records only at an https address or on this machine");
  if (error.name === "NotAllowedError") return t("The browser does not let this page use the microphone");
  return error.name === "NotFoundError" ? t("There is no microphone") : t("The microphone cannot be used");
}

function formatClock(seconds) {
  return `${Math.floor(seconds / 60)}:${String(Math.floor(seconds) % 60).padStart(2, "0")}`;
}

/** Records from when it is shown. `onDone(file)` gets the recording; `onEnd(problem)` follows, also without one. */
export function Recorder({ onDone, onEnd }) {
  const [seconds, setSeconds] = useState(null); // null until the microphone is on
  const recorder = useRef(null);
  const isKept = useRef(false);
  const finish = (keep) => {
    isKept.current = keep;
    if (recorder.current?.state === "recording") recorder.current.stop();
    else onEnd("");
  };
  useEffect(() => {
    let isShown = true;
    let stream = null;
    let timer = 0;
    const chunks = [];
    const stop = () => {
      clearInterval(timer);
      stream?.getTracks().forEach((track) => track.stop());
    };
    const begin = async () => {
      stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      if (!isShown) return stop();
      const mimeType = TYPES.find((type) => MediaRecorder.isTypeSupported(type));
      const made = new MediaRecorder(stream, { mimeType, audioBitsPerSecond: BITS });
      const startedAt = Date.now();
      recorder.current = made;
      made.addEventListener("dataavailable", (event) => event.data.size && chunks.push(event.data));
      made.addEventListener("stop", () => {
        stop();
        if (!isShown) return;
        const type = made.mimeType.split(";")[0];
        const time = new Date().toTimeString().slice(0, 5).replace(":", ".");
        if (isKept.current && chunks.length) onDone(new File(chunks, `${t("Voice message")} ${time}.${NAMES[type] ?? "webm"}`, { type }));
        onEnd("");
      });
      made.start(1000);
      setSeconds(0);
      timer = setInterval(() => {
        const passed = (Date.now() - startedAt) / 1000;
        setSeconds(passed);
        if (passed >= LONGEST) finish(true);
      }, 250);
      return undefined;
    };
    begin().catch((error) => {
      stop();
      if (isShown) onEnd(explain(error));
    });
    return () => {
      isShown = false;
      if (recorder.current?.state === "recording") recorder.current.stop();
      stop();
    };
  }, []);
  const onKeyDown = (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    finish(false);
  };
  const isOn = seconds !== null;
  return html`<div class="row recording" role="group" aria-label="Recording" onKeyDown=${onKeyDown}>
    <span class="vh" role="status">${t(isOn ? "Recording" : "Waiting for the microphone")}</span>
    <span class=${isOn ? "live" : "spin"} aria-hidden="true"></span>
    <span class="num" aria-hidden="true">${isOn ? formatClock(seconds) : t("Waiting for the microphone")}</span>
    <${Button} kind="bare" onClick=${() => finish(false)}>Cancel</${Button}>
    <${Button} icon="check" autofocus=${true} disabled=${!isOn} onClick=${() => finish(true)}>Done</${Button}></div>`;
}
