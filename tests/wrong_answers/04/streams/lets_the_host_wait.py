# expects: the host waits
class TwoStreams:
    sides = None

    def cycles(self, journeys):
        main = torch.cuda.current_stream()
        self.sides = self.sides or [torch.cuda.Stream(), torch.cuda.Stream()]
        cycles = []
        for side, journey in zip(self.sides, journeys, strict=True):
            side.wait_stream(main)
            with torch.cuda.stream(side), no_shared_casts(journey.real.device.type):
                cycles.append(self.cycle(*journey))
        for side, cycle in zip(self.sides, cycles, strict=True):
            side.synchronize()
            for pictures in cycle:
                pictures.record_stream(main)
        return tuple(cycles)
