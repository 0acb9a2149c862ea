"""Many streams at once, what each of them says, and how long the longest pause of them was."""
import threading
import time

from processes import SECONDS_MAX


class Streams:
    """Started together; each reads in a thread of its own."""

    def __init__(self, service, requests):
        self._changed = threading.Condition()
        self.events = [[] for _ in requests]  # times at which something came
        self.streams = [None] * len(requests)
        self._threads = [threading.Thread(target=self._read, args=(service, index, request), daemon=True)
                         for index, request in enumerate(requests)]
        for thread in self._threads:
            thread.start()

    def _read(self, service, index, request):
        stream = service.stream(**request)
        self.streams[index] = stream
        while stream.next():
            with self._changed:
                self.events[index].append(time.monotonic())
                self._changed.notify_all()
        stream.connection.close()

    def wait_for(self, count):
        """Until each has got `count` events or has ended."""
        with self._changed:
            def come():
                return all(len(events) >= count or not thread.is_alive()
                           for events, thread in zip(self.events, self._threads))
            deadline = time.monotonic() + SECONDS_MAX
            while not come():
                if time.monotonic() > deadline:
                    raise AssertionError(f"waited in vain for {count} events: {[len(e) for e in self.events]}")
                self._changed.wait(0.1)

    def texts(self, seconds_max=SECONDS_MAX):
        """Of all of them, at their end."""
        for thread in self._threads:
            thread.join(seconds_max)
        unfinished = [stream.error for stream in self.streams if not stream.done]
        if unfinished:
            raise AssertionError(f"not answered to the end: {unfinished}")
        return [stream.text for stream in self.streams]

    def pauses_after(self, moment):
        """Seconds of the longest pause after this moment, of the stream with the shortest and with the longest one.

        What was on its way at the moment comes before the pause."""
        pauses = []
        for events in self.events:
            later = [moment] + [at for at in events if at > moment]
            if len(later) > 1:
                pauses.append(max(after - before for before, after in zip(later, later[1:])))
        return (min(pauses), max(pauses)) if pauses else (0.0, 0.0)
