# expects: has no attribute 'sides'
class TwoStreams:
    side = None

    def cycles(self, journeys):
        main = torch.cuda.current_stream()
        if self.side is None:
            self.side = torch.cuda.Stream(), torch.cuda.Stream()
        cycles = []
        for stream, journey in zip(self.sides, journeys, strict=True):
            stream.wait_stream(main)
            with torch.cuda.stream(stream), no_shared_casts(journey.real.device.type):
                cycles.append(self.cycle(*journey))
        for stream, cycle in zip(self.sides, cycles, strict=True):
            main.wait_stream(stream)
            for pictures in cycle:
                pictures.record_stream(main)
        return tuple(cycles)
