# expects: call main.wait_stream(side_1)
class TwoStreams:
    def cycles(self, journeys):
        main, sides = torch.cuda.current_stream(), [torch.cuda.Stream(), torch.cuda.Stream()]
        cycles = []
        for side, journey in zip(sides, journeys, strict=True):
            side.wait_stream(main)
            with torch.cuda.stream(side), no_shared_casts(journey.real.device.type):
                cycles.append(self.cycle(*journey))
        for cycle in cycles:
            for pictures in cycle:
                pictures.record_stream(main)
        return tuple(cycles)
