# expects: so nothing overlaps
class TwoStreams:
    def cycles(self, journeys):
        main, sides = torch.cuda.current_stream(), [torch.cuda.Stream(), torch.cuda.Stream()]
        cycles = []
        for side, journey in zip(sides, journeys, strict=True):
            side.wait_stream(main)
            with torch.cuda.stream(side), no_shared_casts(journey.real.device.type):
                cycle = self.cycle(*journey)
            main.wait_stream(side)
            for pictures in cycle:
                pictures.record_stream(main)
            cycles.append(cycle)
        return tuple(cycles)
