# expects: call side_1.wait_stream(main)
class TwoStreams:
    side = None

    def cycles(self, journeys):
        main = torch.cuda.current_stream()
        if self.side is None:
            self.side = torch.cuda.Stream(), torch.cuda.Stream()
        cycles = []
        for stream, journey in zip(self.side, journeys, strict=True):
            main.wait_stream(stream)
            with torch.cuda.stream(stream), no_shared_casts(journey.real.device.type):
                cycles.append(self.cycle(*journey))
        for stream, cycle in zip(self.side, cycles, strict=True):
            stream.wait_stream(main)
            for pictures in cycle:
                pictures.record_stream(main)
        return tuple(cycles)
